GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 5s

.PHONY: build test race fuzz lint golden accuracy bench clean

build: ## the binary, in bin/
	$(GO) build -o bin/memplan ./cmd/memplan

test: ## all tests
	$(GO) test ./...

race: ## the tests that share memory between goroutines or arenas, under the race detector
	$(GO) test -race -short ./...

fuzz: ## every fuzz target for FUZZTIME
	./tools/fuzz.sh $(FUZZTIME)

lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

golden: ## rewrite expected outputs; look at the difference before you commit it
	$(GO) test ./internal/graph ./internal/exporttorch ./internal/cli -update
	$(GO) run ./tools/accuracy -update

accuracy: ## hold predictions against recordings of real PyTorch; fails if they got worse
	$(GO) run ./tools/accuracy -check

bench: ## speed, memory, start-up
	$(GO) test -run '^$$' -bench . -benchmem ./internal/allocsim ./internal/engine
	./tools/startup.sh

clean:
	rm -rf bin
