package torchver

// readText says in docs/releases.md what the rows were found in.
const readText = `
Nothing yet.
`
