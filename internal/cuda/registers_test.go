package cuda

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

var updateRegisters = flag.Bool("update-registers", false, "write kernels/registers.txt, with ptxas")

// registersFile says what NVIDIA's assembler makes of the committed code, which the driver compiles likewise.
const registersFile = "kernels/registers.txt"

// sm is what a multiprocessor has, by the table of compute capabilities in the CUDA C++ Programming Guide; of
// shared memory each block takes 1 KiB more than it asks for.
type sm struct {
	name                 string
	registers            int
	shared               tensor.Bytes
	threads, blocksAtOne int
}

var sms = []sm{
	{"sm_80", 65536, 164 * tensor.KiB, 2048, 32},
	{"sm_90", 65536, 228 * tensor.KiB, 2048, 32},
}

const blockThreads = 256 // of all functions

// use is what a function takes.
type use struct {
	registers, spilled int
	shared             tensor.Bytes
}

// blocks is how many blocks of a function a multiprocessor has at one time. Registers are handed out to warps in
// units of 256.
func (m *sm) blocks(u use) int {
	warp := (u.registers*32 + 255) / 256 * 256
	n := min(m.registers/(warp*blockThreads/32), m.threads/blockThreads, m.blocksAtOne)
	return min(n, int(m.shared/(u.shared+tensor.KiB)))
}

var (
	compilingRE = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spilledRE   = regexp.MustCompile(`(\d+) bytes spill stores`)
	usedRE      = regexp.MustCompile(`Used (\d+) registers(?:, (\d+) bytes smem)?`)
	entryRE     = regexp.MustCompile(`\.entry (\w+)\(`)
)

// assembled runs ptxas.
func assembled(t *testing.T, gpu, ptx string) map[string]use {
	t.Helper()
	file := filepath.Join(t.TempDir(), "module.ptx")
	if err := os.WriteFile(file, []byte(ptx), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := exec.Command("ptxas", "-arch="+gpu, "-v", "-o", os.DevNull, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", gpu, err, log)
	}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	out, name, spilled := map[string]use{}, "", 0
	for line := range strings.Lines(string(log)) {
		if m := compilingRE.FindStringSubmatch(line); m != nil {
			name = m[1]
		} else if m := spilledRE.FindStringSubmatch(line); m != nil {
			spilled = number(m[1])
		} else if m := usedRE.FindStringSubmatch(line); m != nil {
			out[name] = use{number(m[1]), spilled, tensor.Bytes(number(m[2])) + dynamicShared(name)}
		}
	}
	return out
}

// TestRegisters holds that all kernels find room in registers on the GPUs of data centres, and that the committed
// table is of the committed code. Where ptxas is there, it holds the table against it, and assembles for other GPUs.
func TestRegisters(t *testing.T) {
	files := modules(t)
	texts := []string{files["kernels/module.ptx.gz"], files["kernels/module_80.ptx.gz"]}
	h := sha256.New()
	for _, text := range texts {
		h.Write([]byte(text))
	}
	heading := fmt.Sprintf("# What ptxas makes of the kernels: go test ./internal/cuda -run TestRegisters -update-registers\n# code %x\n", h.Sum(nil))
	if _, err := exec.LookPath("ptxas"); err == nil {
		table := heading + "gpu function registers shared spilled blocks\n"
		for i := range sms {
			uses := map[string]use{}
			for _, text := range texts {
				maps.Copy(uses, assembled(t, sms[i].name, text))
			}
			for _, name := range slices.Sorted(maps.Keys(uses)) {
				u := uses[name]
				table += fmt.Sprintf("%s %s %d %d %d %d\n", sms[i].name, name, u.registers, u.shared, u.spilled, sms[i].blocks(u))
			}
		}
		for _, gpu := range []string{"sm_70", "sm_75"} {
			assembled(t, gpu, texts[0])
		}
		if *updateRegisters {
			if err := os.WriteFile(registersFile, []byte(table), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if committed, err := os.ReadFile(registersFile); err != nil || string(committed) != table {
			t.Errorf("%s is not what ptxas says (%v); another version may say otherwise; -update-registers writes it", registersFile, err)
		}
	} else if *updateRegisters {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(registersFile)
	if err != nil {
		t.Fatal(err)
	}
	rows, ok := strings.CutPrefix(string(committed), heading)
	if !ok {
		t.Fatalf("%s is of other code; with ptxas on the PATH, -update-registers writes it", registersFile)
	}
	seen := map[string]bool{}
	for _, row := range strings.Split(strings.TrimSpace(rows), "\n")[1:] {
		var gpu, name string
		var u use
		var blocks int
		if _, err := fmt.Sscan(row, &gpu, &name, &u.registers, &u.shared, &u.spilled, &blocks); err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		seen[gpu+" "+name] = true
		if u.spilled > 0 {
			t.Errorf("%s on %s keeps %d bytes of what it holds in memory", name, gpu, u.spilled)
		}
		if least := leastBlocks(name); blocks < least {
			t.Errorf("of %s, %d blocks run at a time on %s, want %d", name, blocks, gpu, least)
		}
	}
	for _, text := range texts {
		for _, m := range entryRE.FindAllStringSubmatch(text, -1) {
			for i := range sms {
				if !seen[sms[i].name+" "+m[1]] {
					t.Errorf("%s has no %s on %s", registersFile, m[1], sms[i].name)
				}
			}
		}
	}
}

// leastBlocks is how many blocks a multiprocessor is to have at a time: the largest tiles, and fused attention on tensor
// cores, whose sums stay in registers, may have one.
func leastBlocks(name string) int {
	if strings.HasPrefix(name, "attention_") && strings.HasSuffix(name, "16") || name == "gemm_256" || strings.HasPrefix(name, "gemm_staged_256_") {
		return 1
	}
	return 2
}
