#pragma once

#include <string>

#include "diagnose/advise.h"

namespace millrace::cli {

/// One JSON object in one line.
std::string AdviceJson(const Advice& advice, const AdviseSettings& settings);

/// The same for people: what was measured, the predictions side by side, the advice, and the arithmetic.
std::string AdviceText(const Advice& advice, const AdviseSettings& settings);

}  // namespace millrace::cli
