#pragma once

#include <cstdint>

#include "base/memory_budget.h"
#include "net/metrics_text.h"

namespace millrace {

/// Bytes that this process has in memory now; 0 if the system does not tell.
uint64_t ResidentBytes();

/// Version, CPU time, memory, open files and start of this process.
void CollectProcess(MetricsText* text);
void CollectMemory(const MemoryBudget& budget, MetricsText* text);

}  // namespace millrace
