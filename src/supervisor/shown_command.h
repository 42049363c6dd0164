#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Makes the text of a command in messages and journals, without secrets. Pure.

namespace millrace {

/// Returns the URL without the text before the '@' of its authority, which may be a password.
std::string WithoutUser(std::string_view url);

/// Returns the words with "***" in place of each value that may be a secret. NAME=VALUE behind `env` is one. So is the
/// value of a variable, an option or a setting whose name ends like that of a secret: HF_TOKEN=x, --api-key x,
/// --hfToken x, ++db.password=x, {"api_key": "x"}. Headers are hidden, Authorization: Bearer x, and so are signatures
/// in a query, ?X-Amz-Signature=x. URLs lose their user. The same holds for the parts of a word with white space, as
/// `sh -c` has it. "***" also stands in place of each text of `secrets`, of which the first ones come first.
std::vector<std::string> ShownCommand(const std::vector<std::string>& words,
                                      const std::vector<std::string>& secrets = {});

/// Returns true if a value stands there that ShownCommand hides for the name of its variable or option, or for being
/// the user of a URL. Other variables behind `env` do not count, nor users
/// of ssh, nor values that a shell replaces: $KEY, $(cat key).
bool HasSecret(const std::vector<std::string>& words);

}  // namespace millrace
