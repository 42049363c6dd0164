#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pugi {
class xml_document;
struct xml_node_struct;
}  // namespace pugi

namespace millrace {

/// This is an element of an XmlDocument: a view, valid as long as the document. An element that is absent is false, and
/// has no name, no text and no children.
class XmlElement {
 public:
  XmlElement() = default;
  explicit operator bool() const { return node_ != nullptr; }

  std::string_view name() const;
  /// Returns the first child of that name.
  XmlElement Child(const char* name) const;
  /// Returns all children of that name, in order.
  std::vector<XmlElement> Children(const char* name) const;
  /// Returns the text of Child(name).
  std::string_view Text(const char* name) const;

 private:
  friend class XmlDocument;
  explicit XmlElement(pugi::xml_node_struct* node) : node_(node) {}

  pugi::xml_node_struct* node_ = nullptr;
};

/// Holds a document that a service of AWS has sent:
///
///   ASSIGN_OR_RETURN(const XmlDocument document, XmlDocument::Parse(text));
///   for (const XmlElement& volume : document.root().Child("volumeSet").Children("item"))
///   Show(volume.Text("volumeId"));
///
/// Attributes and comments are left out. Text that consists of spaces is kept, since the key of an object may do so.
class XmlDocument {
 public:
  /// Returns InvalidArgument for text that is not XML. Pure; fuzzed.
  static absl::StatusOr<XmlDocument> Parse(std::string_view xml);

  XmlElement root() const;

 private:
  std::shared_ptr<const pugi::xml_document> document_;
};

}  // namespace millrace
