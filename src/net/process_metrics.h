#pragma once

#include <cstdint>

#include "base/memory_budget.h"
#include "net/metrics_text.h"

namespace millrace {

/// Returns the bytes that this process has in memory now; 0 if the system does not say.
uint64_t ResidentBytes();

/// Collects version, CPU time, memory, open files and start of this process.
void CollectProcess(MetricsText* text);
void CollectMemory(const MemoryBudget& budget, MetricsText* text);

}  // namespace millrace
