package tensor

import "testing"

func TestParseDType(t *testing.T) {
	for s, want := range map[string]DType{
		"float32": Float32, "torch.float32": Float32, "float": Float32, "fp32": Float32, "half": Float16, "bf16": BFloat16,
		"bfloat16": BFloat16, "double": Float64, "long": Int64, "int": Int32, "short": Int16, "bool": Bool, "uint8": Uint8,
	} {
		if got, err := ParseDType(s); err != nil || got != want {
			t.Errorf("ParseDType(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "float31", "torch.", "Float32", "torch.torch.float32", " float32"} {
		if got, err := ParseDType(s); err == nil {
			t.Errorf("ParseDType(%q) = %v, want an error", s, got)
		}
	}
}

func TestDTypeNamesParse(t *testing.T) {
	names := DTypeNames()
	if len(names) != int(numDTypes) {
		t.Fatalf("%d names for %d types", len(names), numDTypes)
	}
	for i, n := range names {
		d, err := ParseDType(n)
		if err != nil || d != DType(i) || d.String() != n || d.Size() < 1 || d.Size() > 8 {
			t.Errorf("%s: %v of %d bytes, %v", n, d, d.Size(), err)
		}
	}
}

// TestPromote has PyTorch's table (c10/core/ScalarType.cpp, _promoteTypesLookup).
func TestPromote(t *testing.T) {
	order := []DType{Uint8, Int8, Int16, Int32, Int64, Float16, Float32, Float64, Bool, BFloat16}
	table := [][]DType{
		{Uint8, Int16, Int16, Int32, Int64, Float16, Float32, Float64, Uint8, BFloat16},
		{Int16, Int8, Int16, Int32, Int64, Float16, Float32, Float64, Int8, BFloat16},
		{Int16, Int16, Int16, Int32, Int64, Float16, Float32, Float64, Int16, BFloat16},
		{Int32, Int32, Int32, Int32, Int64, Float16, Float32, Float64, Int32, BFloat16},
		{Int64, Int64, Int64, Int64, Int64, Float16, Float32, Float64, Int64, BFloat16},
		{Float16, Float16, Float16, Float16, Float16, Float16, Float32, Float64, Float16, Float32},
		{Float32, Float32, Float32, Float32, Float32, Float32, Float32, Float64, Float32, Float32},
		{Float64, Float64, Float64, Float64, Float64, Float64, Float64, Float64, Float64, Float64},
		{Uint8, Int8, Int16, Int32, Int64, Float16, Float32, Float64, Bool, BFloat16},
		{BFloat16, BFloat16, BFloat16, BFloat16, BFloat16, Float32, Float32, Float64, BFloat16, BFloat16},
	}
	for i, a := range order {
		for j, b := range order {
			if got := Promote(a, b); got != table[i][j] {
				t.Errorf("Promote(%v, %v) = %v, want %v", a, b, got, table[i][j])
			}
		}
	}
}

func TestAccumulate(t *testing.T) {
	for d, want := range map[DType]DType{Float16: Float32, BFloat16: Float32, Float32: Float32, Float64: Float64, Int64: Int64} {
		if got := d.Accumulate(); got != want {
			t.Errorf("%v accumulates in %v, want %v", d, got, want)
		}
	}
}
