package accuracy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/memplan/memplan/internal/trace"
)

// Files lists the files of recordings in testdata whose events are compared.
func Files(dir string) ([]string, error) {
	var all []string
	for _, suite := range []string{"truth", "truth-hf", "truth-trainer", "fuzz"} {
		files, err := filepath.Glob(filepath.Join(dir, suite, "*.json.gz"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no recordings in %s (%v)", filepath.Join(dir, suite), err)
		}
		all = append(all, files...)
	}
	return all, nil
}

// Pack rewrites a file of one recording, or of a list of them, in the form in which
// files are kept: events as trace.Recorded writes them, each recording compressed
// by itself. All else stays as it is. It reports whether events were in another form.
func Pack(path string) (bool, error) {
	var whole json.RawMessage
	if err := readJSON(path, &whole); err != nil {
		return false, err
	}
	var texts []json.RawMessage
	list := whole[0] == '['
	if !list {
		texts = []json.RawMessage{whole}
	} else if err := json.Unmarshal(whole, &texts); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	changed, packed := false, make([][]byte, len(texts))
	for i, text := range texts {
		p, err := pack(text)
		if err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
		changed = changed || !bytes.Equal(p, text)
		packed[i] = p
	}
	switch {
	case !changed:
		return false, nil
	case list:
		return true, writeList(path, packed)
	}
	return true, write(path, packed)
}

// pack rewrites the events of a recording.
func pack(text []byte) ([]byte, error) {
	var raw struct{ Events json.RawMessage }
	if err := json.Unmarshal(text, &raw); err != nil || raw.Events == nil {
		return text, err
	}
	var r trace.Recorded
	if err := json.Unmarshal(raw.Events, &r); err != nil {
		return nil, err
	}
	events, err := json.Marshal(r)
	return bytes.Replace(text, raw.Events, events, 1), err
}

// writeList writes texts as a list in JSON.
func writeList(path string, texts [][]byte) error {
	var parts [][]byte
	for i, text := range texts {
		parts = append(parts, append([]byte{"[,"[min(i, 1)]}, text...))
	}
	if len(texts) == 0 {
		parts = [][]byte{[]byte("[")}
	}
	return write(path, append(parts, []byte("]\n")))
}

// write compresses each part by itself: gzip's members, one behind the other.
func write(path string, parts [][]byte) error {
	var b bytes.Buffer
	for _, part := range parts {
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := io.Copy(z, bytes.NewReader(part)); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
