#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// An XML document as plain data, for services of AWS whose answers have no parser of their own (s3/xml.h). Attributes
/// and comments are left out.
struct XmlElement {
  std::string name;
  std::string text;  // of an element without elements below it
  std::vector<XmlElement> children;

  /// The first child of that name, or nullptr.
  const XmlElement* Find(std::string_view child) const;
  /// Its text; "" if there is none.
  std::string Text(std::string_view child) const;
  /// The elements <item> below that child, as EC2 writes lists.
  std::vector<const XmlElement*> Items(std::string_view list) const;
};

/// InvalidArgument for what is no XML, or is nested more deeply than any answer of AWS. Pure; fuzzed.
absl::StatusOr<XmlElement> ParseXmlTree(std::string_view xml);

}  // namespace millrace
