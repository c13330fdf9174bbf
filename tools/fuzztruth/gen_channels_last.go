package main

import (
	"slices"
	"strings"
)

// imagePresets are those that take images.
var imagePresets = []string{
	"alexnet", "autoencoder", "convnext", "densenet", "diffusion", "efficientnet", "googlenet", "lenet", "mlp_mixer", "mnasnet", "mobilenet_v2", "mobilenet_v3",
	"regnet", "resnet", "segmentation", "shufflenet_v2", "squeezenet", "swin", "unet", "vgg", "vision_transformer", "vit",
}

// lastJob is a job whose model and images are in channels-last order: a preset, or a
// program of images, of common operators or of less common ones.
func (g *generator) lastJob(seed uint64) (text, arch string) {
	switch g.images = true; seed % 4 {
	case 0:
		text, arch = g.preset(seed / 4)
	case 1:
		text, arch = g.breadthJob(seed)
	default:
		text, arch = g.spec(seed)
	}
	return strings.Replace(text, "train:\n", "train:\n  channels_last: true\n", 1), arch
}

// takesImages reports whether a preset suits the jobs that are drawn.
func (g *generator) takesImages(preset string) bool {
	return !g.images || slices.Contains(imagePresets, preset)
}
