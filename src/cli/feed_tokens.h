#pragma once

#include <string>
#include <string_view>

#include "cli/json_text.h"
#include "pipeline/explain.h"
#include "pipeline/token_rows.h"

namespace millrace::cli {

/// Parses "2048", "2048:pad:truncate", "2048:stream:documents" or "256x64,512x32:bucket". InvalidArgument says which
/// forms are accepted.
absl::StatusOr<TokenOptions> ParseTokens(std::string_view text);

/// Returns the rows of a source for people; "" where items are samples.
std::string RowsText(const TokenOptions* tokens, const std::vector<LoaderExplanation::Rows>& rows);
/// Returns the same for machines.
JsonObject RowsJson(const TokenOptions& tokens, const std::vector<LoaderExplanation::Rows>& rows);

}  // namespace millrace::cli
