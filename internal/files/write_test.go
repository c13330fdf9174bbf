//go:build unix

package files

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/memplan/memplan/internal/needs"
)

// size is that of the files which are written again and again.
const size = 1 << 20

// A process that writes files again and again, to be killed: so many, one after the
// other, or ever new ones.
func TestMain(m *testing.M) {
	if path := os.Getenv("MEMPLAN_TEST_WRITE"); path != "" {
		names, err := strconv.Atoi(os.Getenv("MEMPLAN_TEST_NAMES"))
		if err != nil {
			panic(err)
		}
		text := []byte(strings.Repeat("x", size))
		for i := 0; ; i++ {
			if err := WriteBytes(path+strconv.Itoa(i%names), text); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.xml")
	for _, text := range []string{"first", "second"} {
		if err := WriteBytes(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	link := filepath.Join(dir, "link.xml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(link, []byte("third")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "third" {
		t.Errorf("a link was replaced: %q", got)
	}
	wrong := errors.New("wrong")
	if err := Write(path, func(w io.Writer) error { w.Write([]byte("half")); return wrong }); err != wrong {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "third" {
		t.Errorf("a part was written: %q", got)
	}
	if err := os.WriteFile(temporary(path), []byte("left behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(path, []byte("fourth")); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, "link.xml", "report.xml")
	if err := WriteBytes(filepath.Join(dir, "no", "folder"), nil); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "no")) {
		t.Errorf("%v", err)
	}
	if err := WriteBytes(dir, nil); err == nil {
		t.Error("a folder was written")
	}
}

// holds checks the names of a folder.
func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
}

// TestNamed is TestWrite where files cannot be without a name.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.xml")
	w := &writing{path: path, name: temporary(path)}
	f, err := os.Create(w.name)
	if err != nil {
		t.Fatal(err)
	}
	w.file = f
	if err := w.fill(func(w io.Writer) error { _, err := w.Write([]byte("text")); return err }, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.appear(true); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, "report.xml")
}

func TestUmask(t *testing.T) {
	for mask, want := range map[int]os.FileMode{0o077: 0o600, 0o002: 0o664, 0o022: 0o644} {
		path := filepath.Join(t.TempDir(), "f")
		old := syscall.Umask(mask)
		err := WriteBytes(path, []byte("x"))
		if err == nil {
			err = os.Chmod(path, 0o640)
		}
		if info, serr := os.Stat(path); err != nil || serr != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v %v", err, serr)
		}
		fresh := path + "2"
		err = WriteBytes(fresh, []byte("x"))
		again := WriteBytes(path, []byte("y"))
		syscall.Umask(old)
		info, serr := os.Stat(fresh)
		if err != nil || serr != nil || info.Mode().Perm() != want {
			t.Errorf("umask %o: %v, %v, want %v", mask, err, info, want)
		}
		if info, serr := os.Stat(path); again != nil || serr != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("a file that is replaced keeps its permissions: %v", info)
		}
	}
}

func TestFull(t *testing.T) {
	needs.System(t, "/dev/full", "linux")
	if err := WriteBytes("/dev/full", []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
}

// TestReadOnly runs itself as nobody where permissions do not bind who runs it.
func TestReadOnly(t *testing.T) {
	const nobody = 65534
	dir := os.Getenv("MEMPLAN_TEST_READONLY")
	if dir == "" {
		dir = t.TempDir()
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		self := filepath.Join(t.TempDir(), "files.test") // which nobody can reach
		binary, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(self, binary, 0o755)
		}
		for at := filepath.Dir(self); err == nil && at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
			err = os.Chmod(at, 0o755)
		}
		for at := filepath.Dir(dir); err == nil && at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
			err = os.Chmod(at, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self, "-test.run", "^TestReadOnly$")
		c.Env = append(os.Environ(), "MEMPLAN_TEST_READONLY="+dir)
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("as nobody: %v\n%s", err, out)
		}
		return
	}
	err := WriteBytes(filepath.Join(dir, "f"), nil)
	if err == nil || err.Error() != "no file can be made in "+dir+": permission denied" {
		t.Errorf("%v", err)
	}
	if err := Try(filepath.Join(dir, "f")); err == nil {
		t.Error("it would not fail")
	}
}

// A process that is killed at any time leaves whole files. Of new files it leaves
// nothing else; what it may leave of a file that it replaced has the one name that
// the next takes away.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range []int{3, 1_000_000} {
		for i := range 12 {
			dir := t.TempDir()
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "MEMPLAN_TEST_WRITE="+filepath.Join(dir, "f"), "MEMPLAN_TEST_NAMES="+strconv.Itoa(names))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, err := os.Stat(filepath.Join(dir, "f2")); err != nil; _, err = os.Stat(filepath.Join(dir, "f2")) { // it is under way
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			cmd.Process.Kill()
			cmd.Wait()
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) < 3 {
				t.Fatalf("%v, %v", entries, err)
			}
			for _, e := range entries {
				if name := e.Name(); names > 3 && name[0] == '.' || name[0] == '.' && !strings.HasSuffix(name, ".memplan-tmp") {
					t.Errorf("%s is left behind", name)
				}
				if info, err := e.Info(); err != nil || info.Size() != size {
					t.Errorf("%s has %d bytes, %v", e.Name(), info.Size(), err)
				}
			}
			if names > 3 {
				continue
			}
			for _, name := range []string{"f0", "f1", "f2"} {
				if err := WriteBytes(filepath.Join(dir, name), []byte("x")); err != nil {
					t.Error(err)
				}
			}
			holds(t, dir, "f0", "f1", "f2")
		}
	}
}
