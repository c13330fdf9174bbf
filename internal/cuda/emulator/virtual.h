// The driver's virtual memory management: a part of driver.cpp.
#pragma once

#include <sys/mman.h>

namespace {

// Memory that is mapped: what exists, by handle, with how often it is mapped and
// whether it was released; and ranges of addresses, of reservations and of what is
// mapped into them.
enum { GRANULE = 2 << 20 };
struct Memory {
	size_t size;
	int mapped = 0;
	bool released = false;
};
struct Mapping {
	size_t size;
	CUmemGenericAllocationHandle handle;
	bool allowed = false;
};
std::map<CUmemGenericAllocationHandle, Memory> memories;
std::map<CUdeviceptr, size_t> reservations;
std::map<CUdeviceptr, Mapping> mappings_at;
CUmemGenericAllocationHandle last_handle;

void settle(CUmemGenericAllocationHandle h) { // gives memory back that nothing needs
	Memory &m = memories[h];
	if (m.mapped || !m.released) return;
	used -= m.size;
	memories.erase(h);
}

void lose_mappings() {
	for (auto &r : reservations) munmap((void *)r.first, r.second);
	reservations.clear();
	mappings_at.clear();
	memories.clear();
}

// within returns the range of a map that an address lies in, or its end.
template <class M> typename M::iterator within(M &m, CUdeviceptr a, size_t (*size)(const typename M::mapped_type &)) {
	auto b = m.upper_bound(a);
	if (b == m.begin()) return m.end();
	--b;
	return a < b->first + size(b->second) ? b : m.end();
}
size_t size_of(const size_t &n) { return n; }
size_t size_of_mapping(const Mapping &m) { return m.size; }

// inside reports whether n bytes at a lie in one block, or in mappings side by side.
bool inside(CUdeviceptr a, size_t n) {
	auto b = within(blocks, a, size_of);
	if (b != blocks.end()) return a + n <= b->first + b->second;
	for (CUdeviceptr end = a + n; a < end;) {
		auto m = within(mappings_at, a, size_of_mapping);
		if (m == mappings_at.end() || !m->second.allowed) return false;
		a = m->first + m->second.size;
	}
	return true;
}

} // namespace

extern "C" {
// Virtual memory management. Mappings hold garbage at first.
CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) { CALL; *n = GRANULE; return CUDA_SUCCESS; }
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t, CUdeviceptr, unsigned long long) {
	CALL;
	if (n == 0 || n % GRANULE) return CUDA_ERROR_INVALID_VALUE;
	size_t taken = 0;
	for (auto &r : reservations) taken += r.second;
	void *m = taken + n > addresses ? MAP_FAILED : mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	reservations[*p = (CUdeviceptr)m] = n;
	return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
	CALL;
	auto r = reservations.find(p);
	auto m = mappings_at.lower_bound(p);
	if (r == reservations.end() || r->second != n || (m != mappings_at.end() && m->first < p + n)) return CUDA_ERROR_INVALID_VALUE;
	munmap((void *)p, n);
	reservations.erase(r);
	return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long) {
	CALL;
	allocations++;
	if (n == 0 || n % GRANULE || p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->location.id >= devices)
		return CUDA_ERROR_INVALID_VALUE;
	if (allocations == fail_alloc || used + n > total) return CUDA_ERROR_OUT_OF_MEMORY;
	used += n;
	memories[*h = ++last_handle].size = n;
	return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	CALL;
	auto m = memories.find(h);
	if (m == memories.end() || m->second.released) return CUDA_ERROR_INVALID_VALUE;
	m->second.released = true;
	settle(h);
	return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long) {
	CALL;
	if (++mappings == fail_map) return CUDA_ERROR_MAP_FAILED;
	auto r = within(reservations, p, size_of);
	auto m = memories.find(h);
	auto next = mappings_at.lower_bound(p);
	if (p % GRANULE || offset || r == reservations.end() || p + n > r->first + r->second || m == memories.end() || m->second.size != n ||
	    (next != mappings_at.end() && next->first < p + n) || within(mappings_at, p, size_of_mapping) != mappings_at.end())
		return CUDA_ERROR_INVALID_VALUE;
	mappings_at[p] = {n, h};
	m->second.mapped++;
	return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *d, size_t count) {
	CALL;
	if (++mappings == fail_map) return CUDA_ERROR_MAP_FAILED;
	if (count != 1 || d->location.type != CU_MEM_LOCATION_TYPE_DEVICE || d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
	for (CUdeviceptr a = p; a < p + n;) {
		auto m = mappings_at.find(a);
		if (m == mappings_at.end() || a + m->second.size > p + n) return CUDA_ERROR_INVALID_VALUE;
		a += m->second.size;
	}
	if (mprotect((void *)p, n, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
	for (auto m = mappings_at.find(p); m != mappings_at.end() && m->first < p + n; ++m) m->second.allowed = true;
	memset((void *)p, 0xff, n);
	return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
	CALL;
	auto m = mappings_at.find(p);
	if (m == mappings_at.end() || m->second.size != n) return CUDA_ERROR_INVALID_VALUE;
	mmap((void *)p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	auto h = m->second.handle;
	mappings_at.erase(m);
	memories[h].mapped--;
	settle(h);
	return CUDA_SUCCESS;
}
}
