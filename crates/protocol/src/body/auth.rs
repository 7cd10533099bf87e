//! Users and access rules as administrators send and see them (codes 3001 to 3010).
//!
//! Every word is text here, as in Java; what it means is the business of those who check it.

use serde::{Deserialize, Serialize};

/// A user: body of codes 3001 and 3002, answer to codes 3004 and, in an array, 3005.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserInfo {
    /// The password, also in answers.
    pub password: Option<String>,
    /// `enable` or `disable`.
    pub user_status: Option<String>,
    /// `Super` or `Normal`.
    pub user_type: Option<String>,
    /// The name.
    pub username: Option<String>,
}

/// What a subject may do: body of codes 3006 and 3007, answer to codes 3009 and, in an array, 3010.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AclInfo {
    /// The rules.
    pub policies: Option<Vec<PolicyInfo>>,
    /// `User:name`.
    pub subject: Option<String>,
}

/// Rules of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyInfo {
    /// The rules.
    pub entries: Option<Vec<PolicyEntryInfo>>,
    /// `Custom` or `Default`.
    pub policy_type: Option<String>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyEntryInfo {
    /// `All`, `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`.
    pub actions: Option<Vec<String>>,
    /// `Allow` or `Deny`.
    pub decision: Option<String>,
    /// `Topic:name`, `Group:name`, …, with `*` behind a prefix or alone.
    pub resource: Option<String>,
    /// Networks that the rule is for; none means all.
    pub source_ips: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::assert_sample;
    use super::*;

    #[test]
    fn samples() {
        let some = |text: &str| Some(text.to_owned());
        let user = UserInfo {
            password: some("p"),
            user_status: some("enable"),
            user_type: some("Super"),
            username: some("u"),
        };
        assert_sample(&user, r#"{"password":"p","userStatus":"enable","userType":"Super","username":"u"}"#);
        let entry = PolicyEntryInfo {
            actions: Some(vec!["Pub".to_owned(), "Sub".to_owned()]),
            decision: some("Allow"),
            resource: some("Topic:T"),
            source_ips: Some(vec!["192.168.0.0/16".to_owned()]),
        };
        let policy = PolicyInfo { entries: Some(vec![entry]), policy_type: None };
        assert_sample(
            &AclInfo { policies: Some(vec![policy]), subject: some("User:u") },
            r#"{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:T","sourceIps":["192.168.0.0/16"]}]}],"subject":"User:u"}"#,
        );
    }
}
