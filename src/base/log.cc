#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

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

spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    // Never destroyed: threads may still log while the process ends.
    auto* made = new spdlog::logger("millrace", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::warn);
    if (const char* wanted = std::getenv("MILLRACE_LOG")) {
      made->set_level(spdlog::level::from_str(wanted));
    }
    return made;
  }();
  return *logger;
}

}  // namespace

bool LogEnabled(LogLevel level) {
  return Logger().should_log(ToSpdlog(level));
}

void Log(LogLevel level, std::string_view module, std::string_view message) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;  // which must not obey the names in it
  Logger().log(ToSpdlog(level), "{}: {}", module, terminal ? WithoutControls(message) : std::string(message));
}

}  // namespace millrace
