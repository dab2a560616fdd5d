package entitytest

import "google.golang.org/protobuf/reflect/protoreflect"

// Populate sets every field of a message to a value derived from the number or name of the field. Lists and maps get one
// element. The values must never change, because stored samples are compared with them.
func Populate(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsMap():
			entries := m.Mutable(field).Map()
			value := entries.NewValue()
			setElement(field.MapValue(), value, func(v protoreflect.Value) { value = v })
			entries.Set(scalar(field.MapKey()).MapKey(), value)
		case field.IsList():
			list := m.Mutable(field).List()
			value := list.NewElement()
			setElement(field, value, func(v protoreflect.Value) { value = v })
			list.Append(value)
		case field.Message() != nil:
			Populate(m.Mutable(field).Message())
		default:
			m.Set(field, scalar(field))
		}
	}
}

// setElement populates an element of a list or map in place if it is a message, and replaces it by a sample value if not.
func setElement(field protoreflect.FieldDescriptor, element protoreflect.Value, replace func(protoreflect.Value)) {
	if field.Message() != nil {
		Populate(element.Message())
		return
	}
	replace(scalar(field))
}

// scalar returns the sample value of a field that is not a message.
func scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	n := int(field.Number())
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(field.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, byte(n)})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(1000 + n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(1000 + n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(1000 + n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(1000 + n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(1000 + n))
	default:
		panic("no sample for " + field.Kind().String())
	}
}
