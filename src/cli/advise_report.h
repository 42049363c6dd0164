#pragma once

#include <string>
#include <vector>

#include "cli/json_text.h"
#include "diagnose/advise.h"
#include "diagnose/cost_model.h"

namespace millrace::cli {

/// One JSON object in one line.
std::string AdviceJson(const Advice& advice, const AdviseSettings& settings);

/// The same for people: what was measured, the predictions side by side, the advice, and the arithmetic.
std::string AdviceText(const Advice& advice, const AdviseSettings& settings);

/// Arithmetic, line by line.
std::string DerivationsText(const std::vector<Derivation>& lines);
JsonArray DerivationsJson(const std::vector<Derivation>& lines);

}  // namespace millrace::cli
