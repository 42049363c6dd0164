#pragma once

#include <cstdint>
#include <string>

#include "cli/json_text.h"
#include "pipeline/cache_forecast.h"

/// This file has the forecast of a cache, as `cache simulate` and `feed --explain` print it.

namespace millrace::cli {

JsonObject ForecastJson(uint64_t capacity_bytes, const CacheForecast& found);
std::string ForecastText(uint64_t capacity_bytes, const CacheForecast& found);

}  // namespace millrace::cli
