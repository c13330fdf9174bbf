package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/history"
	"github.com/memplan/memplan/internal/spec"
)

// configFile is a configuration and where it comes from.
type configFile struct {
	gate.ConfigFile
	dir  string // the folder that it is about, absolute
	link bool   // it is reached through a link
}

// configuration reads the configuration and adds the flags. Where specs are
// compared with a commit, the configuration is the commit's, so that a change
// cannot relax the check that it has to pass; --config says otherwise.
func (k *checking) configuration(s *Streams, at *commit) (*gate.Config, *configFile, error) {
	file, err := k.configFile(s, at)
	if err != nil {
		return nil, nil, err
	}
	conf, err := gate.ParseConfig(file.Path, file.dir, file.Text, file.Read)
	if wrong := (*spec.Errors)(nil); errors.As(err, &wrong) && file.link {
		wrong.Private = true
	}
	if err != nil {
		return nil, nil, err
	}
	if k.FailOn != "" {
		if err := oneOf("fail-on", k.FailOn, gate.FailOnNames); err != nil {
			return nil, nil, err
		}
	}
	conf.Outside = func(path string) bool { return s.insideProject(path) != nil }
	if err := conf.Force(&k.Flags); err != nil {
		return nil, nil, usagef("%w", err)
	}
	return conf, file, nil
}

// configFile finds the configuration.
func (k *checking) configFile(s *Streams, at *commit) (*configFile, error) {
	switch {
	case k.config != "":
		if ref, name, ok := gitName(k.config); ok {
			return configOf(ref, name)
		}
		return s.configAt(k.config)
	case at != nil:
		f, err := at.config()
		if !errors.Is(err, history.ErrNoRepository) { // the specs may lie in one
			return f, err
		}
	}
	return s.configHere()
}

// configHere is the configuration of the current folder or the nearest one above
// it.
func (s *Streams) configHere() (*configFile, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for folder, up := dir, ""; ; {
		name := filepath.Join(up, gate.ConfigName)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return s.configAt(name)
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return &configFile{dir: dir}, nil
		}
		folder, up = parent, filepath.Join(up, "..")
	}
}

// configAt is the configuration in a file.
func (s *Streams) configAt(name string) (*configFile, error) {
	if err := s.insideProject(name); err != nil {
		return nil, err
	}
	text, err := s.read(name, files.MaxText)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	return &configFile{dir: dir, link: isLink(name), ConfigFile: gate.ConfigFile{Path: name, Text: text, Read: func(file string) ([]byte, error) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(name), file)
		}
		root, _, err := s.rootOf(name)
		if err != nil {
			return nil, err
		}
		return root.Read(file, files.MaxText)
	}}}, nil
}

// configOf is the configuration in a file as of a commit; the files that it names
// are the commit's too.
func configOf(ref, name string) (*configFile, error) {
	f, err := fileOf(ref, name)
	if err != nil {
		return nil, &noFileError{ref + ":" + name, err}
	}
	text, err := f.read(ref+":"+name, files.MaxText)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	return &configFile{dir: dir, ConfigFile: gate.ConfigFile{Path: ref + ":" + name, Text: text, Read: func(file string) ([]byte, error) {
		named, err := f.beside(file)
		if err != nil {
			return nil, err
		}
		return named.read(ref+":"+filepath.Join(filepath.Dir(name), file), files.MaxText)
	}}}, nil
}

// config is the configuration of the commit: the nearest from the current folder
// upward.
func (at *commit) config() (*configFile, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	t, err := at.tree(cwd)
	if err != nil {
		return nil, err
	}
	dir, err := inRepo(t, cwd, cwd)
	if err != nil {
		return nil, err
	}
	for {
		f := inTree{t, path.Join(dir, gate.ConfigName)}
		switch blob, err := f.blob(); {
		case err != nil:
			return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, f.name, err)
		case blob != "":
			return configOf(at.ref, f.shown())
		case dir == ".":
			return &configFile{dir: cwd}, nil
		}
		dir = path.Dir(dir)
	}
}

// configChange says how the configuration in the working tree differs from that
// of the commit; nil where nothing is compared, or nothing differs. Used is the
// one that counts.
func (k *checking) configChange(s *Streams, at *commit, used *configFile) (*gate.ConfigChange, error) {
	var now, was *configFile
	var wrong, err error // of reading either
	ref, name, ofCommit := gitName(k.config)
	switch {
	case ofCommit:
		was = used
		now, wrong = orNone(s.configAt(name))
	case at == nil:
		return nil, nil
	case k.config == "":
		was, ref = used, at.ref
		now, wrong = orNone(s.configHere())
	default:
		now, ref = used, at.ref
		if was, err = orNone(configOf(ref, k.config)); err != nil {
			return nil, err
		}
	}
	c := gate.CompareConfig(&was.ConfigFile, &now.ConfigFile, wrong)
	if c != nil {
		c.Since, c.Used = ref, used == was
	}
	return c, nil
}

// orNone is an empty configuration in place of one that there is not, or that
// cannot be read.
func orNone(f *configFile, err error) (*configFile, error) {
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*noFileError)) {
		err = nil
	}
	if f == nil {
		f = &configFile{}
	}
	return f, err
}

// isLink reports whether a file is reached through a link, by its last name.
func isLink(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}
