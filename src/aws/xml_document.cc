#include "aws/xml_document.h"

#include <fmt/format.h>

#include <pugixml.hpp>
#include <utility>

namespace millrace {

std::string_view XmlElement::name() const {
  return pugi::xml_node(node_).name();
}

XmlElement XmlElement::Child(const char* name) const {
  return XmlElement(pugi::xml_node(node_).child(name).internal_object());
}

std::vector<XmlElement> XmlElement::Children(const char* name) const {
  std::vector<XmlElement> children;
  for (pugi::xml_node child = pugi::xml_node(node_).child(name); child; child = child.next_sibling(name))
    children.push_back(XmlElement(child.internal_object()));
  return children;
}

std::string_view XmlElement::Text(const char* name) const {
  return pugi::xml_node(node_).child_value(name);
}

absl::StatusOr<XmlDocument> XmlDocument::Parse(std::string_view xml) {
  auto document = std::make_shared<pugi::xml_document>();
  const pugi::xml_parse_result result = document->load_buffer(
      xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata_single, pugi::encoding_utf8);
  if (!result) {
    return absl::InvalidArgumentError(fmt::format("malformed XML at byte {}: {}", result.offset, result.description()));
  }
  XmlDocument parsed;
  parsed.document_ = std::move(document);
  return parsed;
}

XmlElement XmlDocument::root() const {
  return XmlElement(document_->document_element().internal_object());
}

}  // namespace millrace
