GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.8.0
GORELEASER = github.com/goreleaser/goreleaser/v2@v2.16.0
FUZZTIME ?= 5s
ACCURACY = $(CURDIR)/bin/accuracy.txt
CLANG ?= clang-19

# The CUDA backend is built against the project's own cuda.h; the stub satisfies
# the binding's -lcuda, the driver is opened at run time (internal/cuda/driver).
CUDA = internal/cuda
CUDA_OUT = $(CURDIR)/bin/cuda
CUDA_ENV = CGO_ENABLED=1 CGO_CFLAGS="-I$(CURDIR)/$(CUDA)/driver" CGO_LDFLAGS="-L$(CUDA_OUT)"

.PHONY: build estimate test compiling presets race fuzz lint vulncheck golden accuracy bench speed clean cuda cuda-stub cuda-test cuda-gpu-test ptx ptx-check ptx-assemble release release-check

build: compiling ## the binary, in bin/
	@$(GO) build -o bin/memplan ./cmd/memplan

estimate: build ## GPT-2 124M on an A100 40GB
	@bin/memplan estimate

test: compiling ## the tests, each in short, or with ALL=1 whole: about nine minutes of one core; lint vets
	$(GO) test $(if $(ALL),,-short) -vet=off -timeout 60m ./...

compiling: ## says so where that takes a while: nothing of the libraries is compiled
	@if $(GO) build -n -o bin/memplan ./cmd/memplan 2>&1 | grep -q -e '/compile .* -p runtime ' -e '/compile .* -p gopkg.in/yaml.v3 '; then \
		echo "compiling memplan (the first time takes about a minute)" >&2; fi

presets: ## the largest batch of every preset on six GPUs, tried one by one; tests take a sample, and .ci/run half of them
	$(GO) test ./internal/advise -run TestPresets -timeout 60m -args $(or $(PRESETS),-all)

# Packages that start goroutines, lock, or share what they keep; of tests and tools none.
CONCURRENT = $(shell grep -rlE --include='*.go' --exclude='*_test.go' '\bgo func|\bpool\.|"sync"|"sync/atomic"' internal | xargs -n1 dirname | sort -u | grep -vE '^internal/(accuracy|spec/spectest)$$' | sed 's|^|./|')

race: ## the tests of what runs at the same time as something else, under the race detector
	$(GO) test -race -short -vet=off -timeout 60m $(CONCURRENT)

fuzz: ## every fuzz target for FUZZTIME
	./tools/fuzz.sh $(FUZZTIME)

lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

vulncheck: ## known vulnerabilities in what memplan calls; needs the database's service
	./tools/vulncheck.sh "$(GO)" $(GOVULNCHECK)

golden: ## rewrite expected outputs; look at the difference before you commit it
	$(GO) test ./internal/graph ./internal/exporttorch ./internal/cli -update
	$(GO) run ./tools/accuracy -update

accuracy: ## hold predictions against recordings of real PyTorch; fails if they got worse
	@mkdir -p bin && rm -f $(ACCURACY)
	$(GO) test -vet=off -timeout 60m -run TestGate ./internal/accuracy -args -table $(ACCURACY); code=$$?; cat $(ACCURACY) && exit $$code

bench: ## speed, memory, start-up
	$(GO) test -run '^$$' -bench . -benchmem ./internal/allocsim ./internal/engine
	./tools/startup.sh

speed: build ## processor time of an estimate of every preset, with and without --quick
	$(GO) run ./tools/startup -presets bin/memplan

cuda: cuda-stub ## the binary with the CUDA backend; needs a C compiler, no CUDA toolkit
	$(CUDA_ENV) $(GO) build -tags cuda -o bin/memplan ./cmd/memplan

cuda-stub:
	@mkdir -p $(CUDA_OUT)
	@printf '!<arch>\n' > $(CUDA_OUT)/libcuda.a

cuda-test: cuda-stub $(CUDA_OUT)/libcuda.so.1 ## tests of the CUDA backend on an emulated GPU, about three minutes of one core; needs a C++ compiler
	$(CUDA_ENV) $(GO) vet -tags cuda ./$(CUDA)/...
	$(CUDA_ENV) MEMPLAN_LIBCUDA=$(CUDA_OUT)/libcuda.so.1 $(GO) test -count=1 -timeout 20m -tags cuda ./$(CUDA)/...
	$(CUDA_ENV) MEMPLAN_LIBCUDA=$(CUDA_OUT)/libcuda.so.1 $(GO) test -count=1 -timeout 20m -tags cuda -run TestEmulatedGPU ./internal/cli

$(CUDA_OUT)/libcuda.so.1: $(wildcard $(CUDA)/emulator/* $(CUDA)/kernels/* $(CUDA)/driver/*.h)
	@mkdir -p $(CUDA_OUT)
	gzip -dc $(CUDA)/kernels/*.ptx.gz | sed -n 's/.*\.entry \([a-z_0-9]*\)(.*/ENTRY(\1)/p' > $(CUDA_OUT)/entries.h
	$(CXX) -std=c++17 -O3 -march=native -ffp-contract=off -fPIC -shared -Wall -Wno-unknown-pragmas -Wno-maybe-uninitialized -I$(CUDA_OUT) -o $@ $(CUDA)/emulator/driver.cpp

cuda-gpu-test: cuda-stub ## what tools/gpu.sh runs on a machine with a GPU, in bin/
	$(CUDA_ENV) $(GO) test -c -trimpath -ldflags='-s -w' -tags cuda -o bin/cuda.test ./$(CUDA)

ptx: ## compile the kernels, after a change of internal/cuda/kernels
	CLANG=$(CLANG) ./tools/ptx.sh

ptx-check: ## the committed code is that of the kernels, where the compiler is there
	CLANG=$(CLANG) ./tools/ptx.sh -check

ptx-assemble: ## what NVIDIA's assembler makes of the committed code, into its table; needs ptxas
	$(GO) test ./$(CUDA) -run TestRegisters -count=1 -args -update-registers

release-check: ## everything that a release has, in dist/, built twice and tested; nothing is published
	./tools/release.sh $(GORELEASER) check

release: ## publish what release-check has built at a tag: see docs/release.md
	./tools/release.sh $(GORELEASER) publish

clean:
	rm -rf bin dist
