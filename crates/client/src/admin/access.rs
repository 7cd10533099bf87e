//! Users and access rules of 5.x (`docs/spec/10-admin.md` 13). Every broker has its own copy of them.

use ferromq_protocol::body::{AclInfo, UserInfo};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use super::{Admin, Brokers, NO_TOPIC, at, body_or_default};
use crate::error::Error;

impl Admin {
    /// Creates a user.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is one of this name.
    pub async fn create_user(&self, brokers: &Brokers, user: &UserInfo) -> Result<(), Error> {
        self.write_user(request::AUTH_CREATE_USER, brokers, user).await
    }

    /// Changes a user: what is `None` stays.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of this name.
    pub async fn update_user(&self, brokers: &Brokers, user: &UserInfo) -> Result<(), Error> {
        self.write_user(request::AUTH_UPDATE_USER, brokers, user).await
    }

    async fn write_user(&self, code: i32, brokers: &Brokers, user: &UserInfo) -> Result<(), Error> {
        let write = RemotingCommand::request(code)
            .with_some("username", user.username.as_ref())
            .with_body(json::to_vec(user));
        self.done_at(brokers, NO_TOPIC, write).await
    }

    /// Deletes a user and its rules.
    ///
    /// # Errors
    /// If a broker does not answer, or the caller may not do this.
    pub async fn delete_user(&self, brokers: &Brokers, username: &str) -> Result<(), Error> {
        let delete = RemotingCommand::request(request::AUTH_DELETE_USER).with("username", username);
        self.done_at(brokers, NO_TOPIC, delete).await
    }

    /// A user of a broker.
    ///
    /// # Errors
    /// If the broker does not answer, or the caller may not do this.
    pub async fn get_user(&self, address: &str, username: &str) -> Result<Option<UserInfo>, Error> {
        let to = at(address, NO_TOPIC);
        let query = RemotingCommand::request(request::AUTH_GET_USER).with("username", username);
        body_or_default(to, request::AUTH_GET_USER, &self.done(to, query).await?)
    }

    /// The users of a broker whose names contain `filter`.
    ///
    /// # Errors
    /// If the broker does not answer, or the caller may not do this.
    pub async fn list_users(&self, address: &str, filter: Option<&str>) -> Result<Vec<UserInfo>, Error> {
        let to = at(address, NO_TOPIC);
        let query = RemotingCommand::request(request::AUTH_LIST_USER).with_some("filter", filter);
        body_or_default(to, request::AUTH_LIST_USER, &self.done(to, query).await?)
    }

    /// Adds rules for a subject, `User:name`.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such user, or a rule is not understood.
    pub async fn create_acl(&self, brokers: &Brokers, acl: &AclInfo) -> Result<(), Error> {
        self.write_acl(request::AUTH_CREATE_ACL, brokers, acl).await
    }

    /// Changes rules for a subject.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such user, or a rule is not understood.
    pub async fn update_acl(&self, brokers: &Brokers, acl: &AclInfo) -> Result<(), Error> {
        self.write_acl(request::AUTH_UPDATE_ACL, brokers, acl).await
    }

    async fn write_acl(&self, code: i32, brokers: &Brokers, acl: &AclInfo) -> Result<(), Error> {
        let write = RemotingCommand::request(code)
            .with_some("subject", acl.subject.as_ref())
            .with_body(json::to_vec(acl));
        self.done_at(brokers, NO_TOPIC, write).await
    }

    /// Deletes the rules of a subject: all, or those about a resource, `Topic:name`. `policy_type` is `Custom` or
    /// `Default`.
    ///
    /// # Errors
    /// If a broker does not answer, or the caller may not do this.
    pub async fn delete_acl(
        &self,
        brokers: &Brokers,
        subject: &str,
        policy_type: Option<&str>,
        resource: Option<&str>,
    ) -> Result<(), Error> {
        let delete = RemotingCommand::request(request::AUTH_DELETE_ACL)
            .with("subject", subject)
            .with_some("policyType", policy_type)
            .with_some("resource", resource);
        self.done_at(brokers, NO_TOPIC, delete).await
    }

    /// The rules of a subject at a broker.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such user.
    pub async fn get_acl(&self, address: &str, subject: &str) -> Result<Option<AclInfo>, Error> {
        let to = at(address, NO_TOPIC);
        let query = RemotingCommand::request(request::AUTH_GET_ACL).with("subject", subject);
        body_or_default(to, request::AUTH_GET_ACL, &self.done(to, query).await?)
    }

    /// The rules of a broker whose subjects and resources contain these texts.
    ///
    /// # Errors
    /// If the broker does not answer, or the caller may not do this.
    pub async fn list_acls(
        &self,
        address: &str,
        subject_filter: Option<&str>,
        resource_filter: Option<&str>,
    ) -> Result<Vec<AclInfo>, Error> {
        let to = at(address, NO_TOPIC);
        let query = RemotingCommand::request(request::AUTH_LIST_ACL)
            .with_some("subjectFilter", subject_filter)
            .with_some("resourceFilter", resource_filter);
        body_or_default(to, request::AUTH_LIST_ACL, &self.done(to, query).await?)
    }
}
