// Package record reads what was recorded of a script, operator by operator, and plays
// it: the rows of package aten say what each operator allocates inside, and storages go
// where they went in the script.
package record
