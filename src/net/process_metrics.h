#pragma once

#include "base/memory_budget.h"
#include "net/metrics_text.h"

namespace millrace {

/// Version, CPU time, memory, open files and start of this process.
void CollectProcess(MetricsText* text);
void CollectMemory(const MemoryBudget& budget, MetricsText* text);

}  // namespace millrace
