#pragma once

#include <string>

#include "cli/json_text.h"
#include "dataset/skipped_objects.h"

namespace millrace::cli {

/// "3 objects were passed over:" and a line for each reason with the first names; "" if there are none.
std::string SkippedText(const SkippedObjects& skipped);

/// {"objects": their number, "named": [{"object", "why"}]}
JsonObject SkippedJson(const SkippedObjects& skipped);

}  // namespace millrace::cli
