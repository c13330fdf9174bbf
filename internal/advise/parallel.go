package advise

import "github.com/memplan/memplan/internal/pool"

// parallel runs f for 0 to n-1 on all cores. A panic in f is that of parallel.
func parallel(n int, f func(i int)) { pool.Do(n, f) }
