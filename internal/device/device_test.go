package device

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

// TestLookup spells names as users, nvidia-smi and torch do.
func TestLookup(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a100-40gb", "a100-40gb"},
		{"A100-SXM4-40GB", "a100-40gb"},
		{"NVIDIA A100-SXM4-40GB", "a100-40gb"},
		{"a100 40gb", "a100-40gb"},
		{"a100_80gb", "a100-80gb"},
		{"NVIDIA A100 80GB PCIe", "a100-80gb"},
		{"NVIDIA A100-SXM4-80GB", "a100-80gb"},
		{"Tesla V100-SXM2-16GB", "v100-16gb"},
		{"Tesla V100-PCIE-32GB", "v100-32gb"},
		{"Tesla T4", "t4"},
		{"NVIDIA Tesla T4", "t4"},
		{"NVIDIA A10G", "a10g"},
		{"NVIDIA L4", "l4"},
		{"h100", "h100-80gb"},
		{"NVIDIA H100 80GB HBM3", "h100-80gb"},
		{"NVIDIA H200", "h200"},
		{"NVIDIA H20", "h20"},
		{"h20-96gb", "h20"},
		{"3060", "rtx-3060"},
		{"NVIDIA GeForce RTX 3060", "rtx-3060"},
		{"3090", "rtx-3090"},
		{"rtx3090", "rtx-3090"},
		{"RTX-3090", "rtx-3090"},
		{"GeForce RTX 3090", "rtx-3090"},
		{"NVIDIA GeForce RTX 4060 Laptop GPU", "rtx-4060"},
		{" RTX 4090\n", "rtx-4090"},
		{Default, "a100-40gb"},
		{"NVIDIA A10", "a10"},
		{"Tesla P100-PCIE-16GB", "p100-16gb"},
		{"NVIDIA H100 PCIe", "h100-pcie"},
		{"NVIDIA H100 NVL", "h100-nvl"},
		{"NVIDIA GH200 480GB", "gh200-96gb"},
		{"NVIDIA RTX A6000", "rtx-a6000"},
		{"a6000", "rtx-a6000"},
		{"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
		{"Quadro RTX 6000", "quadro-rtx-6000"},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"},
		{"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"},
		{"4090 laptop", "rtx-4090-laptop"},
		{"NVIDIA GeForce RTX 3050 6GB Laptop GPU", "rtx-3050-laptop-6gb"},
		{"NVIDIA GeForce GTX 1060 6GB", "gtx-1060-6gb"},
		{"1080ti", "gtx-1080-ti"},
		{"jetson orin nano", "jetson-orin-nano-8gb"},
	} {
		g, err := Lookup(c.in)
		if err != nil {
			t.Errorf("Lookup(%q): %v", c.in, err)
		} else if g.Name != c.want {
			t.Errorf("Lookup(%q) = %s, want %s", c.in, g.Name, c.want)
		}
	}
}

func TestLookupErrors(t *testing.T) {
	known := fmt.Sprintf(" (memplan list devices shows the %d that are known; others need memory, arch and sms instead)", len(table))
	for _, c := range []struct{ in, want string }{
		{"a100", `gpu "a100" comes in several sizes; allowed are a100-40gb (39.49 GiB), a100-80gb (79.25 GiB)`},
		{"NVIDIA V100", `gpu "NVIDIA V100" comes in several sizes; allowed are v100-16gb (15.77 GiB), v100-32gb (31.73 GiB)`},
		{"a100-41gb", `unknown gpu "a100-41gb"; did you mean "a100-40gb"?` + known},
		{"rtx 3091", `unknown gpu "rtx 3091"; did you mean "rtx-3090"?` + known},
		{"h100-sxm6", `unknown gpu "h100-sxm6"; did you mean "h100-80gb"?` + known},
		{"RTX 3080", `gpu "RTX 3080" comes in several sizes; allowed are rtx-3080-10gb (9.64 GiB), rtx-3080-12gb (11.63 GiB)`},
		{"mi300x", `unknown gpu "mi300x"` + known},
		{"", `unknown gpu ""` + known},
		{"nvidia", `unknown gpu "nvidia"` + known},
		{"-", `unknown gpu "-"` + known},
	} {
		g, err := Lookup(c.in)
		if err == nil {
			t.Errorf("Lookup(%q) = %s, want an error", c.in, g.Name)
		} else if err.Error() != c.want {
			t.Errorf("Lookup(%q):\n got %v\nwant %s", c.in, err, c.want)
		}
	}
	if _, err := Lookup(strings.Repeat("rtx", 1<<16)); err == nil || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a hostile name is near nothing")
	}
}

// TestNames checks that every name means one row, and which.
func TestNames(t *testing.T) {
	owner := map[string]string{} // compact name → row
	for _, g := range All() {
		for _, n := range append([]string{g.Name, g.Display}, g.Aliases...) {
			if c := compact(n); n != g.Display {
				if o, taken := owner[c]; taken {
					t.Errorf("%s: %q is also a name of %s", g.Name, n, o)
				}
				owner[c] = g.Name
			}
		}
		for _, n := range append([]string{g.Name}, g.Aliases...) {
			if got, err := Lookup(n); err != nil || got.Name != g.Name {
				t.Errorf("%s: Lookup(%q) = %v, %v", g.Name, n, got, err)
			}
		}
		if g.Name != strings.ToLower(g.Name) || strings.ContainsAny(g.Name, " _") {
			t.Errorf("%q is not lower case with hyphens", g.Name)
		}
		if !strings.HasPrefix(g.Display, "NVIDIA ") {
			t.Errorf("%s: display name %q", g.Name, g.Display)
		}
	}
	for _, g := range All() {
		if o, taken := owner[compact(g.Family)]; g.Family != "" && taken {
			t.Errorf("family %q of %s is also a name of %s", g.Family, g.Name, o)
		}
	}
}

func TestFigures(t *testing.T) {
	dated := regexp.MustCompile(`\b20[12]\d\b|^assumed: `)
	for _, g := range All() {
		share := float64(g.Total.Value) / float64(tensor.Bytes(g.MarketedGiB)*tensor.GiB)
		if share < 0.85 || share > 1 {
			t.Errorf("%s: total %v is %.3f of %d GiB", g.Name, g.Total.Value, share, g.MarketedGiB)
		}
		if g.ThreadsPerSM() == 0 {
			t.Errorf("%s: no threads per SM for sm_%d", g.Name, g.Arch)
		}
		if g.SMs < 8 || g.SMs > 200 {
			t.Errorf("%s: %d SMs", g.Name, g.SMs)
		}
		if got := g.Usable(); got != g.Total.Value-g.Context.Value || got <= 0 {
			t.Errorf("%s: usable %v", g.Name, got)
		}
		for what, f := range map[string]Figure{"total": g.Total, "context": g.Context} {
			if f.Low <= 0 || f.Low > f.Value || f.Value > f.High {
				t.Errorf("%s: %s %v is not within %v and %v", g.Name, what, f.Value, f.Low, f.High)
			}
			if !dated.MatchString(f.Source) {
				t.Errorf("%s: the source of the %s has no date: %q", g.Name, what, f.Source)
			}
		}
		if g.Context.Low < 48*tensor.MiB || g.Context.High > tensor.GiB {
			t.Errorf("%s: context %v to %v", g.Name, g.Context.Low, g.Context.High)
		}
	}
}

// TestSMsSource counts the rows whose multiprocessors no one was found to state: there
// are to be no more.
func TestSMsSource(t *testing.T) {
	var without []string
	for _, g := range All() {
		if g.SMsSource == "" {
			without = append(without, g.Name)
		}
	}
	if len(without) > 13 {
		t.Errorf("%d rows have no source for their SMs: %v", len(without), without)
	}
}

// TestOrder checks that the listing is stable and sensible, and a copy.
func TestOrder(t *testing.T) {
	for _, rows := range families {
		for i := 1; i < len(rows); i++ {
			if rows[i].Arch < rows[i-1].Arch {
				t.Errorf("%s (sm_%d) is listed after %s (sm_%d)", rows[i].Name, rows[i].Arch, rows[i-1].Name, rows[i-1].Arch)
			}
		}
	}
	all := All()
	all[0].Name, all[0].Aliases[0] = "x", "x"
	g, err := Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	g.Name, g.Aliases[0] = "y", "y"
	for _, g := range All() {
		if g.Name == "x" || g.Name == "y" || slices.Contains(g.Aliases, "x") || slices.Contains(g.Aliases, "y") {
			t.Errorf("a caller changed the table: %s", g.Name)
		}
	}
}

// TestAssumedContext holds the line against every measured row, those that it
// was fitted to and those that came later.
func TestAssumedContext(t *testing.T) {
	near := func(name string, threads int, f Figure) {
		t.Helper()
		a := assumedContext(threads)
		if r := float64(a.Value) / float64(f.Value); r < 0.8 || r > 1.2 {
			t.Errorf("%s: context %v, the line says %v", name, f.Value, a.Value)
		}
		if a.Low > f.Low || a.High < f.High {
			t.Errorf("%s: context of %v to %v, the line allows %v to %v", name, f.Low, f.High, a.Low, a.High)
		}
	}
	for _, g := range All() {
		if !g.Context.Assumed {
			near(g.Name, g.SMs*g.ThreadsPerSM(), g.Context)
		}
	}
	rows := complete([]GPU{{Arch: 86, SMs: 48}})
	if f := rows[0].Context; !f.Assumed || f.Value != 198*tensor.MiB {
		t.Errorf("a row without a context got %+v", f)
	}
}

// FuzzLookup checks that a name gives a row that it means, or an error that
// says something.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{"a100-40gb", "NVIDIA A100-SXM4-40GB", "a100", "tesla", "", "rtx 5090", "İ100", "\xff", "nvidianvidia t4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := Lookup(s)
		switch {
		case err != nil:
			if g != nil || !strings.Contains(err.Error(), "gpu") {
				t.Errorf("Lookup(%q) = %v, %v", s, g, err)
			}
		case g.Name == "" || g.SMs <= 0:
			t.Errorf("Lookup(%q) = %+v", s, g)
		default:
			if again, err := Lookup(g.Name); err != nil || again.Name != g.Name {
				t.Errorf("Lookup(%q) is %s, but that name gives %v, %v", s, g.Name, again, err)
			}
		}
	})
}
