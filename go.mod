module github.com/memplan/memplan

go 1.25.0

require (
	github.com/cockroachdb/datadriven v1.0.3
	go.starlark.net v0.0.0-20260908191801-89a6a09411d5
	gopkg.in/yaml.v3 v3.0.1
)

require github.com/pmezard/go-difflib v1.0.0 // indirect
