#include "base/log.h"

#include <pthread.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log_setting.h"
#include "base/utf8.h"

namespace millrace {

namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

constexpr spdlog::level::level_enum kDefaultLevel = spdlog::level::warn;

// Returns the value of MILLRACE_LOG; nullopt if it is not a level.
std::optional<spdlog::level::level_enum> WantedLevel() {
  using Name = std::pair<std::string_view, spdlog::level::level_enum>;
  constexpr std::array<Name, 5> kNames = {{{"debug", spdlog::level::debug},
                                           {"info", spdlog::level::info},
                                           {"warning", spdlog::level::warn},
                                           {"error", spdlog::level::err},
                                           {"off", spdlog::level::off}}};
  const char* const wanted = std::getenv("MILLRACE_LOG");
  if (wanted == nullptr || *wanted == '\0') return kDefaultLevel;
  const auto* const name =
      std::find_if(kNames.begin(), kNames.end(), [wanted](const Name& known) { return known.first == wanted; });
  return name == kNames.end() ? std::nullopt : std::optional(name->second);
}

std::unique_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink) {
  auto made = std::make_unique<spdlog::logger>("millrace", std::move(sink));
  made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  made->set_level(WantedLevel().value_or(kDefaultLevel));
  return made;
}

// Loggers are never destroyed: threads may still log while the process ends.
std::atomic<spdlog::logger*> of_process{nullptr};

// A process that was forked while another thread logged would wait forever for that thread, which it does not have. So
// its logger is a new one. Its lines go through std::cerr, whose lock the C library keeps sound over a fork.
void RenewInFork() {
  constexpr bool kFlush = true;
  of_process = MakeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(std::cerr, kFlush)).release();
}

spdlog::logger& Logger() {
  [[maybe_unused]] static const bool is_made = [] {
    of_process = MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>()).release();
    if (const absl::Status setting = CheckLogSetting(); !setting.ok())
      of_process.load()->warn("base: {}; until then it counts as warning", ToStd(setting.message()));
    pthread_atfork(nullptr, nullptr, RenewInFork);
    return true;
  }();
  return *of_process.load(std::memory_order_acquire);
}

}  // namespace

absl::Status CheckLogSetting() {
  if (WantedLevel()) return absl::OkStatus();
  const std::string wanted = WithEscapedControls(std::string_view(std::getenv("MILLRACE_LOG")).substr(0, 64));
  return absl::InvalidArgumentError("MILLRACE_LOG is '" + wanted + "'; it must be debug, info, warning, error or off");
}

bool LogEnabled(LogLevel level) {
  return Logger().should_log(ToSpdlog(level));
}

void Log(LogLevel level, std::string_view module, std::string_view message) {
  Logger().log(ToSpdlog(level), "{}: {}", module, WithEscapedControls(message));
}

}  // namespace millrace
