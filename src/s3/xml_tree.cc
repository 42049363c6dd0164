#include "s3/xml_tree.h"

#include <fmt/format.h>

#include <pugixml.hpp>

namespace millrace {

namespace {

constexpr int kMaxDepth = 32;

bool CopyElement(const pugi::xml_node& from, int depth, XmlElement& to) {
  if (depth > kMaxDepth) return false;
  to.name = from.name();
  to.text = from.text().get();
  for (const pugi::xml_node& child : from.children()) {
    if (child.type() != pugi::node_element) continue;
    if (!CopyElement(child, depth + 1, to.children.emplace_back())) return false;
  }
  return true;
}

}  // namespace

const XmlElement* XmlElement::Find(std::string_view child) const {
  for (const XmlElement& one : children) {
    if (one.name == child) return &one;
  }
  return nullptr;
}

std::string XmlElement::Text(std::string_view child) const {
  const XmlElement* const found = Find(child);
  return found == nullptr ? std::string() : found->text;
}

std::vector<const XmlElement*> XmlElement::Items(std::string_view list) const {
  std::vector<const XmlElement*> items;
  const XmlElement* const found = Find(list);
  if (found == nullptr) return items;
  for (const XmlElement& one : found->children) {
    if (one.name == "item") items.push_back(&one);
  }
  return items;
}

absl::StatusOr<XmlElement> ParseXmlTree(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_parse_result result =
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) {
    return absl::InvalidArgumentError(fmt::format("malformed XML at byte {}: {}", result.offset, result.description()));
  }
  XmlElement root;
  if (!CopyElement(document.document_element(), 0, root))
    return absl::InvalidArgumentError(fmt::format("the XML is nested more than {} deep", kMaxDepth));
  return root;
}

}  // namespace millrace
