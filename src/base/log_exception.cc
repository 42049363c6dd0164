#include "base/log_exception.h"

#include <fmt/format.h>

#include <new>

#include "base/log.h"

namespace millrace {

void LogException(std::string_view module, const std::exception& error) noexcept {
  try {
    const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    Log(LogLevel::kError, module,
        memory ? std::string("there was not enough memory for a step of a request, which ends with an error; run with "
                             "a smaller --memory, or give the process more")
               : fmt::format("a step of a request failed, which ends with an error: {}", error.what()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace millrace
