#include "devstore/ec2_answer.h"

#include <fmt/format.h>

#include "s3/xml.h"

namespace millrace {

std::string Ec2Leaf(std::string_view name, std::string_view text) {
  return fmt::format("<{}>{}</{}>", name, XmlEscape(text), name);
}

std::string Ec2Leaf(std::string_view name, uint64_t value) {
  return Ec2Leaf(name, std::to_string(value));
}

std::string Ec2TagSet(const std::map<std::string, std::string>& tags) {
  std::string out;
  for (const auto& [key, value] : tags)
    out += fmt::format("<item>{}{}</item>", Ec2Leaf("key", key), Ec2Leaf("value", value));
  return fmt::format("<tagSet>{}</tagSet>", out);
}

std::string Ec2Answer(std::string_view action, std::string_view inside) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{0}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">"
      "<requestId>00000000-0000-0000-0000-000000000000</requestId>{1}</{0}Response>",
      action, inside);
}

std::string Ec2True(std::string_view action) {
  return Ec2Answer(action, "<return>true</return>");
}

}  // namespace millrace
