#include "diagnose/host_doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/child_process.h"
#include "base/python_child.h"
#include "base/size.h"
#include "diagnose/host_speed.h"
#include "diagnose/last_line.h"
#include "net/runtime.h"

namespace millrace {

namespace {

using HostJson = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kMemoryTime{500};
constexpr uint64_t kMostMemory = uint64_t{1} << 30;
constexpr std::chrono::milliseconds kDiskTime{2000};
constexpr uint64_t kDiskBytes = 256 << 20;
constexpr std::chrono::milliseconds kPythonTime{50'000};
constexpr size_t kMaxLine = 500;  // of what a program says that fails

std::string_view ResultWord(HealthCheck::Result result) {
  constexpr std::string_view kWords[] = {"ok", "failed", "skipped"};
  return kWords[static_cast<int>(result)];
}

std::string TextOf(const HostJson& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool FlagOf(const HostJson& json, const char* name, bool otherwise) {
  const auto found = json.find(name);
  return found != json.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace

HostDoctor::HostDoctor(HostDoctorOptions options, int local_rank, std::function<void(const HealthCheck&)> on_check)
    : options_(std::move(options)), local_rank_(local_rank), on_check_(std::move(on_check)) {}

bool HostDoctor::healthy() const {
  return others_healthy_ && std::none_of(checks_.begin(), checks_.end(), [](const HealthCheck& check) {
           return check.result == HealthCheck::Result::kFailed;
         });
}

void HostDoctor::Add(HealthCheck check) {
  checks_.push_back(std::move(check));
  on_check_(checks_.back());
}

// A figure is a fault only if the user has said how much it must be at least.
void HostDoctor::Judge(const std::string& name, double figure, double least, const std::string& unit, std::string text,
                       const std::string& remedy) {
  if (figure >= least) return Add({name, HealthCheck::Result::kOk, std::move(text), {}});
  Add({name, HealthCheck::Result::kFailed, fmt::format("{}; it must be {:g} {} at least", text, least, unit), remedy});
}

absl::Status HostDoctor::Examine(const std::stop_token& stop) {
  const auto go_on = [&] { return stop.stop_requested() ? absl::CancelledError("interrupted") : absl::OkStatus(); };
  if (local_rank_ == 0) {
    CheckMemory();
    RETURN_IF_ERROR(go_on());
    CheckDisk();
    RETURN_IF_ERROR(go_on());
    CheckStore();
    RETURN_IF_ERROR(go_on());
  }
  return CheckDevices(stop);
}

void HostDoctor::CheckMemory() {
  const int threads = UsableCpus();
  const uint64_t bytes = std::min(kMostMemory, UsableMemory() / 8);
  const absl::StatusOr<MemorySpeed> speed = MeasureMemory(threads, bytes, kMemoryTime);
  if (!speed.ok()) {
    return Add({"memory", HealthCheck::Result::kFailed, std::string(ToStd(speed.status().message())),
                "end what takes the memory of this machine"});
  }
  if (!speed->sound) {
    return Add({"memory", HealthCheck::Result::kFailed, "gives back other bytes than were written",
                "replace this machine, and have its memory tested"});
  }
  const double gbps = speed->bytes_per_second / 1e9;
  figures_["memory_gbps"] = gbps;
  Judge("memory", gbps, options_.min_memory_gbps, "GB/s",
        fmt::format("{:.1f} GB/s copied by {} threads (bytes read and written)", gbps, threads),
        "end what else runs here; if nothing does, a memory module may be missing or throttled");
}

void HostDoctor::CheckDisk() {
  const absl::StatusOr<DiskSpace> space = MeasureSpace(options_.folder);
  if (!space.ok()) {
    return Add({"disk", HealthCheck::Result::kFailed, std::string(ToStd(space.status().message())),
                "name a folder that exists with --disk"});
  }
  Judge("free space", static_cast<double>(space->free_bytes), static_cast<double>(options_.min_free_bytes), "bytes",
        fmt::format("{} of {} on the disk of {}", FormatSize(space->free_bytes), FormatSize(space->total_bytes),
                    options_.folder),
        "remove what is not needed, or name another disk with --disk");
  const uint64_t bytes = std::min(kDiskBytes, space->free_bytes / 4 / 4096 * 4096);
  if (bytes == 0) return Add({"disk", HealthCheck::Result::kSkipped, "not tried: it is full", {}});
  const absl::StatusOr<DiskSpeed> speed = MeasureDisk(options_.folder, bytes, kDiskTime);
  if (!speed.ok()) {
    return Add(
        {"disk", HealthCheck::Result::kFailed, std::string(ToStd(speed.status().message())),
         absl::IsDataLoss(speed.status()) ? "replace this disk" : "name a folder that can be written to with --disk"});
  }
  figures_["disk_write_mbps"] = speed->write_bytes_per_second / 1e6;
  figures_["disk_read_mbps"] = speed->read_bytes_per_second / 1e6;
  figures_["disk_sync_ms"] = speed->sync_ms;
  Judge("disk", std::min(figures_["disk_write_mbps"], figures_["disk_read_mbps"]), options_.min_disk_mbps, "MB/s",
        fmt::format("{:.0f} MB/s written, {:.0f} MB/s read, {:.1f} ms to make 4 KiB durable ({} in {})",
                    figures_["disk_write_mbps"], figures_["disk_read_mbps"], speed->sync_ms, FormatSize(speed->bytes),
                    options_.folder),
        "use a faster disk for checkpoints and caches");
}

void HostDoctor::CheckStore() {
  if (options_.bucket.empty()) {
    return Add({"store",
                HealthCheck::Result::kSkipped,
                "not tried, nor is the clock: name an s3:// URI to compare this clock and to measure the network",
                {}});
  }
  Doctor doctor(options_.bucket, options_.key, [this](const HealthCheck& check) { Add(check); });
  doctor.CheckAccess();
  doctor.MeasureSpeed([](uint64_t) {});
  const std::optional<StoreSpeed>& speed = doctor.diagnosis().speed;
  if (!speed) return;
  figures_["store_first_byte_ms"] = speed->first_byte_median_ms;
  if (!speed->has_rates) return;
  figures_["store_mbps"] = speed->many_bytes_per_second / 1e6;
  if (options_.min_store_mbps <= 0) return;
  Judge("store", figures_["store_mbps"], options_.min_store_mbps, "MB/s",
        fmt::format("{:.0f} MB/s", figures_["store_mbps"]), "compare the network of this machine with that of others");
}

absl::Status HostDoctor::CheckDevices(const std::stop_token& stop) {
  if (options_.python.empty()) {
    Add({"devices", HealthCheck::Result::kSkipped, "not tried: --python is empty", {}});
    return absl::OkStatus();
  }
  HostJson question = {{"node", options_.node}, {"figures", figures_}, {"min_bus_gbps", options_.min_bus_gbps}};
  HostJson failed = HostJson::array();
  for (const HealthCheck& check : checks_) {
    if (check.result == HealthCheck::Result::kFailed) failed.push_back({{"name", check.name}, {"text", check.text}});
  }
  question["failed"] = std::move(failed);
  const absl::StatusOr<ChildEnd> end =
      RunChild({.words = PythonModule(options_.python, "millrace.preflight"),
                .input = question.dump(-1, ' ', false, HostJson::error_handler_t::replace),
                .keep_errors = true,
                .limit = kPythonTime},
               stop);
  if (absl::IsCancelled(end.status())) return end.status();
  const std::string program = options_.python + " -m millrace.preflight";
  if (end.ok() && end->exit_status == 0) {
    TakeAnswer(end->output);
    return absl::OkStatus();
  }
  const std::string why =
      end.ok() ? fmt::format("exited with status {}: {}", end->exit_status, LastLineOf(end->errors).substr(0, kMaxLine))
               : std::string(ToStd(end.status().message()));
  if (options_.needs_python) {
    Add({"devices", HealthCheck::Result::kFailed, fmt::format("{} {}", program, why),
         "install millrace into the Python that trains, and name it with --python (or --python '' to leave the devices "
         "out)"});
  } else {
    Add({"devices",
         HealthCheck::Result::kSkipped,
         fmt::format("not tried: {} {}; name the Python that trains with --python", program, why),
         {}});
  }
  return absl::OkStatus();
}

void HostDoctor::TakeAnswer(const std::string& text) {
  const HostJson answer = HostJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto checks = answer.is_object() ? answer.find("checks") : answer.end();
  if (!answer.is_object() || checks == answer.end() || !checks->is_array()) {
    return Add({"devices", HealthCheck::Result::kFailed,
                "millrace.preflight has printed something else than its findings",
                "install the same version of millrace into this Python"});
  }
  silent_ = FlagOf(answer, "silent", false);
  others_healthy_ = FlagOf(answer, "healthy", true);
  for (const HostJson& check : *checks) {
    if (!check.is_object()) continue;
    const std::string result = TextOf(check, "result");
    HealthCheck taken{TextOf(check, "name"), HealthCheck::Result::kOk, TextOf(check, "text"), TextOf(check, "remedy")};
    for (const auto known : {HealthCheck::Result::kFailed, HealthCheck::Result::kSkipped}) {
      if (result == ResultWord(known)) taken.result = known;
    }
    Add(std::move(taken));
  }
  const auto figures = answer.find("figures");
  if (figures == answer.end() || !figures->is_object()) return;
  for (const auto& [name, value] : figures->items()) {
    if (value.is_number()) figures_[name] = value.get<double>();
  }
}

}  // namespace millrace
