package importer

import "slices"

// The configuration with which axolotl train --cloud starts the job on machines of a
// provider.
var axolotlCloud = &Format{
	Name: "axolotl-cloud", Title: "Axolotl's cloud configuration", Beside: true,
	Signs:  [][]string{{"provider", "gpu"}, {"gpu", "gpu_count"}},
	Unless: []string{"model_name_or_path", "base_model"},
	Keys: slices.Concat(
		table(reads, "how many processes there are, each on a GPU", "gpu_count node_count"),
		table(none, "the kind of GPU; `--gpu` says for which the job is planned", "gpu"),
		table(none, "the launch: processes, devices and clouds", "provider project_name secrets env volumes branch dockerfile_commands memory timeout memory_preprocess timeout_preprocess"),
	),
}

// gpus reads how many GPUs the machines have.
func (f *file) gpus(j *job) int64 {
	f.table(j, f.doc.Root, f.format, "")
	return f.count("gpu_count", 1) * f.count("node_count", 1)
}
