package requirement

import (
	"io/fs"
	"path"
	"strings"
	"testing"
)

// tree is the files of a project; the folder above "../.." is not in it.
type tree map[string]string

func (t tree) read(name string) ([]byte, error) {
	if strings.HasPrefix(name, "../../..") {
		return nil, fs.ErrPermission
	}
	text, ok := t[path.Clean(name)]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func TestTorch(t *testing.T) {
	uv := "version = 1\n\n[[package]]\nname = \"torch\"\nversion = \"2.9.1\"\nresolution-markers = [\n    \"sys_platform == 'darwin'\",\n]\n" +
		"\n[[package]]\nname = \"torch\"\nversion = \"2.11.0+cu128\"\ndependencies = [\n    { name = \"numpy\" },\n]\n\n[package.optional-dependencies]\nversion = \"0\"\n\n[[package]]\nname = \"torchvision\"\nversion = \"0.26.0\"\n"
	for name, c := range map[string]struct {
		files tree
		want  string // release and place, or a part of the error
	}{
		"uv":             {tree{"uv.lock": uv, "requirements.txt": "torch==2.7"}, "2.11 uv.lock:12: torch 2.11.0+cu128"},
		"poetry":         {tree{"poetry.lock": "[[package]]\nname = \"torch\"\nversion = \"2.8.0\"\noptional = false\n[package.dependencies]\nfilelock = \"*\"\n"}, "2.8 poetry.lock:3: torch 2.8.0"},
		"pdm, above":     {tree{"../pdm.lock": "[[package]]\nname = \"torch\"\nversion = \"2.7.1\"\n"}, "2.7 ../pdm.lock:3: torch 2.7.1"},
		"pylock":         {tree{"pylock.toml": "lock-version = '1.0'\n[[packages]]\nname = 'torch'\nversion = '2.10.0'\n"}, "2.10 pylock.toml:4: torch 2.10.0"},
		"two releases":   {tree{"uv.lock": "[[package]]\nname = \"torch\"\nversion = \"2.8.0\"\n[[package]]\nname = \"torch\"\nversion = \"2.9.0\"\n"}, "uv.lock:6: torch 2.9.0: another release than line 3 has"},
		"pipenv":         {tree{"Pipfile.lock": "{\n \"default\": {\n  \"torch\": {\"version\": \"==2.6.0\"}\n }\n}"}, "2.6 Pipfile.lock:3: torch==2.6.0"},
		"pipenv, broken": {tree{"Pipfile.lock": "{"}, "Pipfile.lock: unexpected end"},
		"pinned":         {tree{"requirements.txt": "numpy\n# torch==2.6\ntorch==2.9.1+cu128 --hash=sha256:0 \n"}, "2.9 requirements.txt:3: torch==2.9.1+cu128"},
		"a range":        {tree{"requirements.txt": "torch[opt-einsum]>=2.6,<2.10 ; python_version >= '3.9'  # why\n"}, "2.9 requirements.txt:1: torch[opt-einsum]>=2.6,<2.10 ; python_version >= '3.9'"},
		"any":            {tree{"requirements.txt": "torch\n"}, "2.14 requirements.txt:1: torch"},
		"compatible":     {tree{"requirements.txt": "torch~=2.7.0"}, "2.7 requirements.txt:1: torch~=2.7.0"},
		"two lines":      {tree{"requirements.txt": "torch == 2.8.*; sys_platform == 'linux'\ntorch==2.2.2; sys_platform == 'darwin'"}, "2.8 requirements.txt:1"},
		"a wheel":        {tree{"requirements.txt": "torch @ https://download.pytorch.org/whl/cu124/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl"}, "2.6 requirements.txt:1: torch @"},
		"a branch":       {tree{"requirements.txt": "torch @ git+https://github.com/pytorch/pytorch"}, "requirements.txt:1: torch @ git+https://github.com/pytorch/pytorch: the address does not say"},
		"included":       {tree{"requirements.txt": "-r sub/base.txt\n", "sub/base.txt": "\ntorch>=2.6\n-c c.txt", "sub/c.txt": "torch<2.8"}, "2.7 sub/base.txt:2: torch>=2.6"},
		"includes no":    {tree{"requirements.txt": "-r base.txt\n"}, "requirements.txt:1: -r base.txt: file does not exist"},
		"itself":         {tree{"requirements.txt": "-r requirements.txt\n"}, "more than 32 files"},
		"constraints":    {tree{"requirements.txt": "torch", "constraints.txt": "torch!=2.14.*"}, "2.13 requirements.txt:1: torch"},
		"contradiction":  {tree{"requirements.txt": "torch<2.8", "constraints.txt": "torch>2.8"}, "constraints.txt:1: torch>2.8: no release from 2.6 to 2.14 fits this and requirements.txt:1: torch<2.8"},
		"old":            {tree{"requirements.txt": "torch==2.5.1"}, "requirements.txt:1: torch==2.5.1: no release that is modelled fits; there are 2.6 to 2.14"},
		"malformed":      {tree{"requirements.txt": "\ntorch>=two"}, `requirements.txt:2: torch>=two: ">=two" is not a condition`},
		"pyproject":      {tree{"pyproject.toml": "[project]\nname = \"torch\"\nrequires-python = \">=3.10\"\ndependencies = [\n  \"numpy>=1\",\n  \"torch>2.6,<=2.8\",\n]\n"}, "2.8 pyproject.toml:6: torch>2.6,<=2.8"},
		"one line":       {tree{"../../pyproject.toml": "[project]\ndependencies = ['numpy', 'torch>=2.6.1,!=2.14.*']"}, "2.13 ../../pyproject.toml:2"},
		"a group":        {tree{"pyproject.toml": "[dependency-groups]\ntrain = [\"torch<2.7\"]\n[tool.other]\nx = \"torch==2.9\""}, "2.6 pyproject.toml:2: torch<2.7"},
		"of poetry":      {tree{"pyproject.toml": "[tool.poetry.dependencies]\ntorch = {version = \"^2.7\", source = \"cu\"}\n"}, "2.14 pyproject.toml:2: torch ^2.7"},
		"of poetry, 2.8": {tree{"pyproject.toml": "[tool.poetry.group.gpu.dependencies]\ntorch = \"2.8\"\n"}, "2.8 pyproject.toml:2: torch ==2.8"},
		"none":           {tree{"requirements.txt": "torchvision\npytorch-lightning\n"}, "neither uv.lock, "},
	} {
		found, err := Torch(c.files.read)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = found.Torch.String() + " " + found.Place.String()
		}
		if !strings.HasPrefix(got, c.want) && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

// FuzzTorch: files of any text give a release that is modelled, or an error.
func FuzzTorch(f *testing.F) {
	for _, s := range []string{"torch==2.9", "torch ~= 2.8.0; sys_platform == 'linux'", "[[package]]\nname = \"torch\"\nversion = \"2\"", "[project]\ndependencies=['torch<3']", "{\"default\":{\"torch\":{}}}"} {
		for _, set := range sources {
			f.Add(set.names[0], s)
		}
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		found, err := Torch(tree{path.Clean(name): text}.read)
		if (found == nil) == (err == nil) {
			t.Errorf("%v, %v", found, err)
		}
	})
}
