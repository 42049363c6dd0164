#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace millrace {

/// Returns an element of the answers of EC2, with a text or a number in it.
std::string Ec2Leaf(std::string_view name, std::string_view text);
std::string Ec2Leaf(std::string_view name, uint64_t value);

/// Returns the element of a resource's tags.
std::string Ec2TagSet(const std::map<std::string, std::string>& tags);

/// Returns the document that answers a call, with these elements.
std::string Ec2Answer(std::string_view action, std::string_view inside);
/// Returns the answer to a call that has only succeeded.
std::string Ec2True(std::string_view action);

}  // namespace millrace
