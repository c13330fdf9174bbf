// Command jobfiles plans all files of training jobs in folders, as memplan estimate
// does, and prints what became of them as a table of docs/jobs.md.
//
//	go run ./tools/jobfiles Axolotl=axolotl/examples LLaMA-Factory=llamafactory/examples
//	go run ./tools/jobfiles -update ...   and write the table to docs/jobs.md
//	go run ./tools/jobfiles -v ...        and print every file with its verdict
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/cli"
	"github.com/memplan/memplan/internal/importer"
	"github.com/memplan/memplan/internal/note"
)

// gpu is the GPU that the jobs are planned for.
const gpu = "h100-80gb"

// page has a table for each name, between two marks.
const page = "docs/jobs.md"

var (
	update  = flag.Bool("update", false, "write the table to "+page)
	one     = flag.String("one", "", "plan this file alone, in a process of its own")
	verbose = flag.Bool("v", false, "print every file")
)

func main() {
	flag.Parse()
	if *one != "" {
		fmt.Println(plan(*one))
		return
	}
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: jobfiles [-v] [-update] NAME=FOLDER...")
		os.Exit(2)
	}
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "jobfiles:", err)
		os.Exit(1)
	}
}

func run(folders []string) error {
	for _, arg := range folders {
		name, folder, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%s must be NAME=FOLDER", arg)
		}
		t, err := planAll(folder)
		if err != nil {
			return err
		}
		text := t.table()
		if !*update {
			fmt.Printf("%s\n%s", name, text)
			continue
		}
		old, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		begin, end := "<!-- examples of "+name+" -->\n", "<!-- /examples of "+name+" -->"
		before, rest, ok := strings.Cut(string(old), begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return fmt.Errorf("%s has no marks for the table of %s", page, name)
		}
		if err := os.WriteFile(page, []byte(before+begin+text+end+after), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// table writes what became of the files.
func (t *tally) table() string {
	var b strings.Builder
	planned, train := t.fits+t.tight+t.oom, t.files-t.beside-t.idle
	fmt.Fprintf(&b, "\n| files | beside a job | train nothing | planned | of them FITS, TIGHT, OOM on %s | fail before they train | refused |\n|---|---|---|---|---|---|---|\n", gpu)
	fmt.Fprintf(&b, "| %d | %d | %d | %d | %d, %d, %d | %d | %d |\n", t.files, t.beside, t.idle, planned, t.fits, t.tight, t.oom, t.failing, train-planned-t.failing)
	fmt.Fprintf(&b, "\n%d files train something. memplan plans %s of them; of %s it plans the job or reports why it fails.\n", train, share(planned, train), share(planned+t.failing, train))
	reasons(&b, "fails before it trains, as", t.fails)
	reasons(&b, "refused, or trains nothing, as", t.why)
	return b.String() + "\n"
}

// share is a number of files with what it is of all of them.
func share(n, of int) string {
	return fmt.Sprintf("%d (%.0f %%)", n, 100*float64(n)/float64(max(of, 1)))
}

// tally is what became of the files of a folder.
type tally struct {
	files, beside, idle, failing, fits, tight, oom int // idle: that train nothing

	fails map[string][]string // files whose jobs fail by themselves, by the reason
	why   map[string][]string // files that were refused, by the reason, and that train nothing
}

// reasons writes the files of each reason, the most frequent reason first.
func reasons(b *strings.Builder, title string, files map[string][]string) {
	if len(files) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s | files |\n|---|---|\n", title)
	order := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		if n := len(files[b]) - len(files[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for _, why := range order {
		fmt.Fprintf(b, "| %s | %s |\n", why, strings.Join(files[why], " "))
	}
}

// workers is how many files are planned at a time, each in a process of its own.
const workers = 4

func planAll(folder string) (*tally, error) {
	var paths []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || d.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && (ext != ".json" || importer.Is(path, text)) { // others are data
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	results := make([]string, len(paths))
	var wait sync.WaitGroup
	places := make(chan struct{}, workers)
	for i, path := range paths {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			out, err := exec.Command(self, "-one", path).Output()
			if results[i] = strings.TrimSpace(string(out)); err != nil {
				results[i] = "refused: " + err.Error()
			}
		})
	}
	wait.Wait()
	t := &tally{files: len(paths), fails: map[string][]string{}, why: map[string][]string{}}
	for i, path := range paths {
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return nil, err
		}
		t.count(filepath.ToSlash(name), results[i])
		if *verbose {
			fmt.Printf("%-70s %s\n", filepath.ToSlash(name), results[i])
		}
	}
	return t, nil
}

// count adds the result of a file.
func (t *tally) count(name, result string) {
	switch word, _, _ := strings.Cut(result, " "); word {
	case "FITS":
		t.fits++
	case "TIGHT":
		t.tight++
	case "OOM":
		t.oom++
	case "beside":
		t.beside++
	case "fails:":
		t.failing++
		why := strings.TrimPrefix(result, "fails: ")
		t.fails[why] = append(t.fails[why], name)
	default:
		why := strings.TrimPrefix(result, "refused: ")
		if strings.Contains(why, trainsNothing) {
			t.idle++
		}
		t.why[why] = append(t.why[why], name)
	}
}

// trainsNothing is in the messages about files that are not of training.
const trainsNothing = "trains nothing"

// nameless is the message of a model whose configuration is not known.
var nameless = regexp.MustCompile(`^there is no file "[^"]*", and memplan has no configuration of such a model(?:, whose model_type is (\w+))?.*`)

// typeless is the message of a model whose type is not modelled.
var typeless = regexp.MustCompile(`^\S+: model_type "(\w+)" is not known.*`)

// place is where a message says that something is.
var place = regexp.MustCompile(`^\S+?:\d+(?::\d+)?: `)

// ignored is the message of a key that may be a mistake, but is none by itself.
var ignored = regexp.MustCompile(`does not know the key, and ignores it`)

// fails are messages about jobs that the program, or a library of it, stops before a step.
var fails = regexp.MustCompile(`PEFT (refuses|fails|has no default)|Axolotl refuses|transformers [0-9.]+ fails|, PyTorch says`)

// plan plans one file, and says what becomes of it.
func plan(path string) string {
	var out, errs bytes.Buffer
	s := cli.System()
	s.Out, s.Err = &out, &errs
	if cli.Main([]string{"estimate", path, "--quick", "--gpu", gpu, "--format", "json"}, s) == 0 {
		var r struct {
			Verdict struct{ Result string }
			Peak    struct {
				Bytes int64 `json:"reserved_bytes"`
			}
			Notes []struct{ Code, Text string }
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			return "refused: " + err.Error()
		}
		for _, n := range r.Notes {
			if n.Code == note.WouldFail.Name {
				return "fails: " + cell(n.Text)
			}
		}
		return fmt.Sprintf("%s %.2f GiB", r.Verdict.Result, float64(r.Peak.Bytes)/(1<<30))
	}
	why, kind := "", "refused: "
	for line := range strings.Lines(errs.String()) { // the first that refuses the file, or says why it fails
		if strings.HasPrefix(line, " ") || ignored.MatchString(line) {
			continue
		}
		text := strings.TrimSpace(strings.TrimPrefix(line, "memplan: "))
		if why == "" {
			why = text
		}
		if fails.MatchString(text) {
			why, kind = text, "fails: "
			break
		}
	}
	why = strings.ReplaceAll(place.ReplaceAllString(why, ""), path, "the file")
	if strings.Contains(why, "comes with the file of a job") {
		return "beside a job"
	}
	if m := nameless.FindStringSubmatch(why); m != nil {
		if why = "the configuration of the model is not known"; m[1] != "" {
			why = "the configuration of the model, of type " + m[1] + ", is not known"
		}
	}
	why = typeless.ReplaceAllString(why, "the model type $1 is not modelled")
	return kind + cell(why)
}

// cell is a text in a table.
func cell(text string) string {
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "..."
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
