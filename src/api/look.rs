//! What customers' pages look like: the product's name and its logo's colour, as the operator sets them.
//!
//! Never knows a page.

/// Characters of a product's name on a page.
const NAME_CHARS_MAX: usize = 40;

/// Whose pages they look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    name: Option<String>,
    colour: Option<Colour>,
}

/// A colour, as `#1a7f37`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour([u8; 3]);

impl Look {
    /// # Errors
    /// What is wrong with a name that is empty, too long, or holds what cannot be seen.
    pub fn new(name: Option<String>, colour: Option<Colour>) -> Result<Look, String> {
        let fits = |name: &String| {
            (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control)
        };
        match name.as_ref().is_none_or(fits) {
            true => Ok(Look { name, colour }),
            false => Err(format!("a name of 1 to {NAME_CHARS_MAX} visible characters is wanted")),
        }
    }

    /// The product's name; what the pages are about, if none was set.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("Webhooks")
    }

    /// The logo's colour, if it was set.
    pub fn colour(&self) -> Option<Colour> {
        self.colour
    }
}

impl std::str::FromStr for Colour {
    type Err = String;

    fn from_str(text: &str) -> Result<Colour, String> {
        let wrong = || format!("`{text}` is no colour of six digits, as #1a7f37");
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6).ok_or_else(wrong)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
        Ok(Colour([part(0)?, part(2)?, part(4)?]))
    }
}

impl std::fmt::Display for Colour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_is_six_digits_and_nothing_else_gets_into_a_style_sheet() {
        assert_eq!("#1A7f37".parse::<Colour>().map(|colour| colour.to_string()), Ok("#1a7f37".into()));
        for wrong in
            ["", "#", "1a7f37", "#1a7f3", "#1a7f377", "#1a7f3g", "#+a7f37", "red", "#é7f37", "#fff;}*{"]
        {
            assert!(wrong.parse::<Colour>().is_err(), "{wrong}");
        }
        assert_eq!(Look::new(Some("Acme".into()), None).expect("a look").name(), "Acme");
        for wrong in [String::new(), "x".repeat(41), "a\nb".into()] {
            assert!(Look::new(Some(wrong), None).is_err());
        }
    }
}
