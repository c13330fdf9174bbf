package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// version is set by the linker for releases (-X).
var version = ""

// versionText is the version of memplan: that of the release, else what the Go
// toolchain recorded.
func versionText() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "devel"
}

func newVersion(s *Streams) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of memplan, of the spec language and of PyTorch",
		Example: `  memplan version
  memplan version --format json`,
		Args: atMost(0, "version takes no argument"),
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("format", format, textJSON); err != nil {
				return err
			}
			v := struct {
				Version string `json:"memplan"`
				Spec    int    `json:"spec_version"`
				Report  int    `json:"report_version"`
				Torch   string `json:"torch_default"`
				Oldest  string `json:"torch_oldest"`
				Newest  string `json:"torch_newest"`
				Go      string `json:"go"`
			}{versionText(), spec.Version1, report.Version, torchver.Default.String(), torchver.Oldest.String(), torchver.Newest.String(), runtime.Version()}
			if format == "json" {
				return report.JSON(s.Out, v)
			}
			_, err := fmt.Fprintf(s.Out, "memplan %s (%s)\nspec language %d, report %d, PyTorch %s to %s (%s by default)\n",
				v.Version, v.Go, v.Spec, v.Report, v.Oldest, v.Newest, v.Torch)
			return err
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text or json")
	completeFlag(c, "format", func() []string { return textJSON })
	return c
}

// textJSON are the formats of commands that print lists.
var textJSON = []string{"text", "json"}
