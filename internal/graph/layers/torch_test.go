package layers

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// absent are the modules of torch.nn that are no layers, and why.
var absent = map[string]string{
	"AdaptiveLogSoftmaxWithLoss": "what it takes depends on the targets",
	"Container":                  "the base of others", "Module": "the base of others", "RNNBase": "the base of others", "RNNCellBase": "the base of others",
	"DataParallel": "one process on several GPUs",
	"ModuleDict":   "holds modules by name, as blocks do", "ModuleList": "holds modules, as repeat does", "Sequential": "is a head of its own",
	"ParameterDict": "holds parameters", "ParameterList": "holds parameters",
	"NLLLoss2d": "deprecated for NLLLoss",
}

// TestTorchNN: the modules of torch.nn of PyTorch 2.6 are layers, but for some.
func TestTorchNN(t *testing.T) {
	text, err := os.ReadFile("testdata/torch_nn.txt") // the subclasses of Module in it
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(text))
	for _, n := range all {
		why := absent[n]
		if name, lazy := strings.CutPrefix(n, "Lazy"); lazy && table[name] != nil {
			why = "sizes follow from the input anyway"
		}
		if (table[n] == nil) == (why == "") {
			t.Errorf("%s: a layer %v, absent for %q", n, table[n] != nil, why)
		}
	}
	for _, n := range Names() {
		if !slices.Contains(all, n) {
			t.Errorf("torch.nn has no %s", n)
		}
	}
}
