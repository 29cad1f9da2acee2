//! Rows as a CSV table, whose columns are the fields that they are serialised with.

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor, value},
    forward_to_deserialize_any,
};
use serde_json::Value;

/// A header with every field of a row, and a line for each row, quoted where that is needed.
pub(super) fn text<'de, T: Serialize + Deserialize<'de>>(rows: &[T]) -> String {
    let columns = columns::<T>();
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Only another number of cells would be refused.
    let _ = writer.write_record(columns);
    for row in rows {
        let row = serde_json::to_value(row).unwrap_or_default();
        let cells = columns
            .iter()
            .map(|column| row.get(column).map_or_else(String::new, cell));
        let _ = writer.write_record(cells);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// A value as it stands in a cell; of a list of stages their names and times, `pack=1.5 sums=10`.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64() {
            // Whole ones without `.0`.
            Some(value) if number.is_f64() => value.to_string(),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields.values().map(cell).collect::<Vec<_>>().join("="),
    }
}

/// The names of all fields of a struct, in their order: also of those that are left out of a row where they are
/// empty, and where there is no row.
fn columns<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names = Names(&[]);
    // It fails once the names are known.
    let _ = T::deserialize(&mut names);
    names.0
}

/// What a struct asks for where it is to be deserialised: its fields by name.
struct Names(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut Names {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("has no values"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
