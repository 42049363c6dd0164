#pragma once

#include <string>
#include <vector>

#include "cli/json_text.h"
#include "diagnose/advise.h"
#include "diagnose/cost_model.h"

namespace millrace::cli {

/// Returns one JSON object in one line.
std::string AdviceJson(const Advice& advice, const AdviseSettings& settings);

/// Returns the same for people: the answer in five lines, what was measured, the predictions side by side, the advice,
/// and the arithmetic.
std::string AdviceText(const Advice& advice, const AdviseSettings& settings);

/// "; g5.xlarge of 2026-01-21": the machines whose prices are of another day than the list.
std::string MachineDatesText(const std::vector<MachinePrice>& machines, const PriceList& prices);

/// Returns the arithmetic, line by line.
std::string DerivationsText(const std::vector<Derivation>& lines);
JsonArray DerivationsJson(const std::vector<Derivation>& lines);

}  // namespace millrace::cli
