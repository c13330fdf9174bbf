package runtime

import "github.com/memplan/memplan/internal/op"

// windowRows pool windows of other kinds.
var windowRows = map[*op.Op]row{op.MaxPool3dIndices: {forward: maxPool, backward: maxPoolGrad}}
