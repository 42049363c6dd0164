#pragma once

#include <exception>
#include <string_view>

namespace millrace {

/// Logs an exception that ends here, as an error. If there is not even memory for that, nothing is written.
void LogException(std::string_view module, const std::exception& error) noexcept;

}  // namespace millrace
