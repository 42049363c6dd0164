#include "diagnose/gpu_meter.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace millrace {

namespace {

// These come from nvml.h, whose functions and structures of these names do not change.
using NvmlDevice = void*;
struct NvmlUtilization {
  unsigned gpu = 0;  // per cent
  unsigned memory = 0;
};
struct NvmlMemory {
  uint64_t total = 0;
  uint64_t free = 0;
  uint64_t used = 0;
};
constexpr int kNvmlSuccess = 0;

}  // namespace

/// libnvidia-ml.so.1, and the handles that it gave.
struct GpuMeter::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shut_down)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  bool begun = false;
  std::vector<NvmlDevice> devices;

  Library() : handle(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) return;
    bool found = Find("nvmlInit_v2", &init) && Find("nvmlShutdown", &shut_down);
    found = found && Find("nvmlDeviceGetCount_v2", &count) && Find("nvmlDeviceGetHandleByIndex_v2", &device);
    found = found && Find("nvmlDeviceGetName", &name) && Find("nvmlDeviceGetUtilizationRates", &utilization);
    begun = found && Find("nvmlDeviceGetMemoryInfo", &memory) && init() == kNvmlSuccess;
    unsigned devices_there = 0;
    if (!begun || count(&devices_there) != kNvmlSuccess) return;
    for (unsigned i = 0; i < devices_there; ++i) {
      NvmlDevice one = nullptr;
      if (device(i, &one) == kNvmlSuccess) devices.push_back(one);
    }
  }
  ~Library() {
    if (begun) shut_down();
    if (handle != nullptr) dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  bool Find(const char* symbol, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle, symbol));
    return *function != nullptr;
  }
};

std::unique_ptr<GpuMeter> GpuMeter::Open() {
  auto library = std::make_unique<Library>();
  if (library->devices.empty()) return nullptr;
  return std::unique_ptr<GpuMeter>(new GpuMeter(std::move(library)));
}

GpuMeter::GpuMeter(std::unique_ptr<Library> library) : library_(std::move(library)) {
  for (NvmlDevice device : library_->devices) {
    std::array<char, 96> text{};
    const bool told = library_->name(device, text.data(), text.size() - 1) == kNvmlSuccess;
    names_.emplace_back(told ? text.data() : "unknown");
  }
}

GpuMeter::~GpuMeter() = default;

GpuMeter::Reading GpuMeter::Read() const {
  Reading reading;
  for (NvmlDevice device : library_->devices) {
    NvmlUtilization used;
    NvmlMemory memory;
    if (library_->utilization(device, &used) == kNvmlSuccess) {
      reading.busy += used.gpu / 100.0 / static_cast<double>(library_->devices.size());
    }
    if (library_->memory(device, &memory) == kNvmlSuccess) reading.memory_bytes += memory.used;
  }
  return reading;
}

}  // namespace millrace
