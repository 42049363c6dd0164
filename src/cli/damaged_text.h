#pragma once

#include <string>

#include "cli/json_text.h"
#include "diagnose/damaged_samples.h"

/// The text and JSON of damaged samples that `bench` and `advise` have met.

namespace millrace::cli {

/// "3 samples, whose places others took; the first: ...", with what lists all of them. There are some.
std::string DamagedText(const DamagedSamples& damaged, const std::string& uri);

/// Adds `bad_samples`, their number, and `first_bad_sample`, which is null if there is none.
void AddDamaged(const DamagedSamples& damaged, JsonObject* json);

}  // namespace millrace::cli
