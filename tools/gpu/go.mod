// What a machine with a GPU is given; go get leaves it out.
module github.com/memplan/memplan/tools/gpu

go 1.26.0
