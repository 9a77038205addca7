//! Valid values of `--store`, and invalid ones, which are refused without repeating a secret.

use reprieve_core::ErrorKind;

use super::*;

#[track_caller]
fn parsed(text: &str) -> (String, String, String, String) {
    let address = Address::parse(text).expect(text);
    let sign_in = match &address.sign_in {
        SignIn::Identity { client_id } => format!("identity {}", client_id.as_deref().unwrap_or("-")),
        SignIn::Own(_) => "own".to_owned(),
        SignIn::Key(key) => format!("key {}", key.secret()),
        SignIn::Sas(sas) => format!("sas {}", sas.secret()),
    };
    (address.account.clone(), address.blobs.to_string(), address.queues.to_string(), sign_in)
}

#[track_caller]
fn check(text: &str, account: &str, blobs: &str, queues: &str, way: &str) {
    let expected = (account.to_owned(), blobs.to_owned(), queues.to_owned(), way.to_owned());
    assert_eq!(parsed(text), expected, "{text}");
}

#[test]
fn an_account_is_reached_by_this_machines_identity() {
    let (blobs, queues) = ("https://thumbs.blob.core.windows.net/", "https://thumbs.queue.core.windows.net/");
    check("azure:thumbs", "thumbs", blobs, queues, "identity -");
    check(" azure:thumbs? ", "thumbs", blobs, queues, "identity -");
    let id = "7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";
    check(&format!("azure:thumbs?client_id={id}"), "thumbs", blobs, queues, &format!("identity {id}"));
    check(
        "azure:thumbs?endpoint_suffix=core.chinacloudapi.cn",
        "thumbs",
        "https://thumbs.blob.core.chinacloudapi.cn/",
        "https://thumbs.queue.core.chinacloudapi.cn/",
        "identity -",
    );
    check(
        "azure:thumbs?sv=2022-11-02&sp=r&sig=a%2Bb",
        "thumbs",
        blobs,
        queues,
        "sas sv=2022-11-02&sp=r&sig=a%2Bb",
    );
}

#[test]
fn a_sas_is_read_as_the_portal_shows_it() {
    let short = Address::parse("azure:thumbs?sv=2022-11-02&sp=r&sig=a%2Bb").expect("an address");
    for shown in [
        "https://thumbs.blob.core.windows.net/?sv=2022-11-02&sp=r&sig=a%2Bb",
        "https://thumbs.queue.core.windows.net/?sv=2022-11-02&sp=r&sig=a%2Bb",
        "azure:thumbs??sv=2022-11-02&sp=r&sig=a%2Bb",
        "HTTPS://thumbs.blob.core.windows.net/?sv=2022-11-02&sp=r&sig=a%2Bb",
    ] {
        let address = Address::parse(shown).expect(shown);
        assert_eq!((&address.blobs, &address.queues), (&short.blobs, &short.queues), "{shown}");
        assert!(matches!(address.sign_in, SignIn::Sas(_)), "{shown}");
    }
    let zone = "https://thumbs.z07.blob.storage.azure.net/?sv=2022-11-02&sp=r&sig=a%2Bb";
    let address = Address::parse(zone).expect(zone);
    assert_eq!(address.blobs.as_str(), "https://thumbs.z07.blob.storage.azure.net/");
    assert_eq!(address.queues.as_str(), "https://thumbs.z07.queue.storage.azure.net/");
    assert_eq!(address.account(), "thumbs");
    for (bad, why) in [
        ("https://thumbs.zone.blob.storage.azure.net/?sv=1&sig=hunter2", "not that of an account's"),
        ("https://thumbs.z07.storage.azure.net/?sv=1&sig=hunter2", "not that of an account's"),
        ("?sv=2022-11-02&sig=hunter2", "a SAS alone names no account"),
        ("sv=2022-11-02&sig=hunter2", "a SAS alone names no account"),
        ("https://thumbs.blob.core.windows.net/", "without a SAS"),
        ("https://thumbs.blob.core.windows.net/container?sv=1&sig=hunter2", "not that of an account's"),
        ("https://example.com/?sv=1&sig=hunter2", "not that of an account's"),
    ] {
        let error = Address::parse(bad).expect_err(bad).to_string();
        assert!(error.contains(why) && !error.contains("hunter2"), "{bad}: {error}");
    }
}

#[test]
fn an_id_that_is_set_for_the_address_is_used_where_it_names_none_and_must_be_a_guid() {
    const OWN: &str = "7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";
    const SET: &str = "8a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";
    let with = |text: &str, id: &str| {
        Address::parse(text).unwrap().with_client_id(id).map(|address| match address.sign_in {
            SignIn::Identity { client_id } => client_id,
            _ => panic!("another way to sign in"),
        })
    };
    assert_eq!(with("azure:thumbs", SET).unwrap().as_deref(), Some(SET));
    assert_eq!(with(&format!("azure:thumbs?client_id={OWN}"), "none").unwrap().as_deref(), Some(OWN));
    assert!(with("azure:thumbs", "my-identity").unwrap_err().message().contains("not a GUID"));
}

#[test]
fn a_connection_string_chooses_an_identity() {
    const ID: &str = "7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";
    let zone = "BlobEndpoint=https://thumbs.z07.blob.storage.azure.net;\
                QueueEndpoint=https://thumbs.z07.queue.storage.azure.net";
    for (text, expected) in [(format!("{zone};ClientId={ID}"), Some(ID)), (zone.to_owned(), None)] {
        let address = Address::parse(&text).expect(&text);
        let SignIn::Identity { client_id } = &address.sign_in else { panic!("{address:?}") };
        assert_eq!((client_id.as_deref(), address.account()), (expected, "thumbs"));
    }
    for (rest, why) in [
        ("ClientId=me", "not a GUID"),
        ("ClientId=7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11;AccountKey=aGk=", "another credential"),
    ] {
        let error = Address::parse(&format!("{zone};{rest}")).expect_err(rest).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_connection_string_is_read_as_the_portal_writes_it() {
    let (blobs, queues) = ("https://thumbs.blob.core.windows.net/", "https://thumbs.queue.core.windows.net/");
    check(
        "DefaultEndpointsProtocol=https;AccountName=thumbs;AccountKey=a2V5;EndpointSuffix=core.windows.net",
        "thumbs",
        blobs,
        queues,
        "key a2V5",
    );
    check(" accountname = thumbs ; ACCOUNTKEY=a2V5; ", "thumbs", blobs, queues, "key a2V5");
    check(
        "BlobEndpoint=https://thumbs.blob.core.windows.net/;QueueEndpoint=https://thumbs.queue.core.windows.net/;\
         FileEndpoint=https://thumbs.file.core.windows.net/;TableEndpoint=https://thumbs.table.core.windows.net/;\
         SharedAccessSignature=?sv=2022-11-02&sig=a%3D",
        "thumbs",
        blobs,
        queues,
        "sas sv=2022-11-02&sig=a%3D",
    );
    check(
        "AccountName=thumbs;BlobEndpoint=https://cdn.example.org",
        "thumbs",
        "https://cdn.example.org/",
        queues,
        "identity -",
    );
    check(
        "DefaultEndpointsProtocol=http;AccountName=thumbs;AccountKey=a2V5",
        "thumbs",
        "http://thumbs.blob.core.windows.net/",
        "http://thumbs.queue.core.windows.net/",
        "key a2V5",
    );
}

#[test]
fn the_emulator_is_reached_by_its_published_key() {
    let key = format!("key {DEVELOPMENT_KEY}");
    let (blobs, queues) =
        ("http://127.0.0.1:10000/devstoreaccount1", "http://127.0.0.1:10001/devstoreaccount1");
    check("azurite", "devstoreaccount1", blobs, queues, &key);
    check("UseDevelopmentStorage=true", "devstoreaccount1", blobs, queues, &key);
    check(
        "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://myhost",
        "devstoreaccount1",
        "http://myhost:10000/devstoreaccount1",
        "http://myhost:10001/devstoreaccount1",
        &key,
    );
    let elsewhere = format!(
        "AccountName=devstoreaccount1;AccountKey={DEVELOPMENT_KEY};BlobEndpoint=http://127.0.0.1:1/devstoreaccount1;\
         QueueEndpoint=http://127.0.0.1:2/devstoreaccount1/"
    );
    let (blobs, queues) = ("http://127.0.0.1:1/devstoreaccount1", "http://127.0.0.1:2/devstoreaccount1");
    check(&elsewhere, "devstoreaccount1", blobs, queues, &key);
    // The account is in the path of an emulator's endpoints.
    let unnamed = elsewhere.replace("AccountName=devstoreaccount1;", "");
    check(&unnamed, "devstoreaccount1", blobs, queues, &key);
}

#[test]
fn an_invalid_address_is_refused_without_repeating_a_secret() {
    for (text, why) in [
        ("", "neither azure:ACCOUNT"),
        ("hunter2", "neither azure:ACCOUNT"),
        ("azure:", "3 to 24"),
        ("azure:Hunter2", "3 to 24"),
        ("azure:https://hunter2.blob.core.windows.net", "3 to 24"),
        ("azure:thumbs?client_id=hunter2", "not a GUID"),
        ("azure:thumbs?clientid=hunter2", "no sig"),
        (
            "azure:thumbs?client_id=7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11&client_id=8a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11",
            "client_id twice",
        ),
        (
            "azure:thumbs?endpoint_suffix=core.windows.net&endpoint_suffix=hunter2.net",
            "endpoint_suffix twice",
        ),
        ("azure:thumbs?sv=1&signature=hunter2", "no sig"),
        ("azure:thumbs?endpoint_suffix=hunter2/x", "not a domain"),
        ("azure:thumbs?sv=1&sig=hunter2 x", "not copied completely"),
        (
            "azure:thumbs?client_id=7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11&sv=1&sig=hunter2",
            "exclude each other",
        ),
        // The key alone; unlike a name it ends in '='.
        ("aHVudGVyMg==hunter2", "part 1 of the connection string is unknown"),
        ("hunter2hunter2/=", "part 1 of the connection string is unknown"),
        ("AccountName=thumbs;hunter2", "part 2 of the connection string has no '='"),
        ("AccountName=thumbs;AcountKey=hunter2", "has AcountKey, which is unknown"),
        ("AccountName=thumbs;AccountKey=hunter2!", "not base64"),
        ("AccountName=thumbs;AccountKey=;", "not base64"),
        ("AccountName=a;AccountName=hunter2", "has AccountName twice"),
        ("AccountName=thumbs;AccountKey=a2V5;SharedAccessSignature=sv=1&sig=hunter2", "give one"),
        ("AccountKey=a2V5", "AccountName is missing"),
        ("AccountName=hunter2/..;AccountKey=a2V5", "AccountName is invalid"),
        ("AccountName=thumbs;AccountKey=a2V5;DefaultEndpointsProtocol=ftp", "neither http nor https"),
        ("AccountName=thumbs;AccountKey=a2V5;BlobEndpoint=hunter2", "not a complete URL"),
        (
            "BlobEndpoint=https://thumbs.z12.blob.storage.azure.net/;SharedAccessSignature=sv=2022-11-02&sig=hunter2",
            "give both a",
        ),
        (
            "QueueEndpoint=https://thumbs.queue.core.chinacloudapi.cn;AccountName=thumbs;AccountKey=a2V5",
            "give both a BlobEndpoint and a QueueEndpoint",
        ),
        ("AccountName=thumbs;AccountKey=a2V5;EndpointSuffix=z12.storage.azure.net", "is a DNS zone"),
        ("AccountName=thumbs;AccountKey=a2V5;BlobEndpoint=ftp://hunter2", "neither http:// nor https://"),
        ("AccountName=thumbs;BlobEndpoint=https://a?sig=hunter2;QueueEndpoint=https://b", "query"),
        ("AccountName=thumbs;BlobEndpoint=https://u:hunter2@a;QueueEndpoint=https://b", "user name"),
        ("AccountName=devstoreaccount1;AccountKey=a2V5", "both a BlobEndpoint and a QueueEndpoint"),
        (
            "AccountName=x;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/x",
            "both a BlobEndpoint and a QueueEndpoint",
        ),
        ("UseDevelopmentStorage=hunter2", "not true"),
        ("UseDevelopmentStorage=true;AccountKey=hunter2", "only DevelopmentStorageProxyUri"),
        ("DevelopmentStorageProxyUri=http://hunter2", "without UseDevelopmentStorage"),
        ("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://hunter2:1", "has a port"),
    ] {
        let error = Address::parse(text).expect_err(text);
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(message.contains(why) && message.contains("REPRIEVE_STORE"), "{text}: {message}");
        assert!(!message.to_lowercase().contains("hunter2") && !message.contains('\n'), "{text}: {message}");
    }
}

#[test]
fn an_address_shows_the_account_and_no_secret() {
    for (text, shown) in [
        ("azure:thumbs?sv=1&sig=hunter2", "azure:thumbs"),
        ("AccountName=thumbs;AccountKey=hunter2h", "azure:thumbs"),
        ("azurite", "azurite"),
        (
            "AccountName=devstoreaccount1;AccountKey=hunter2h;BlobEndpoint=http://127.0.0.1:1/d;\
             QueueEndpoint=http://127.0.0.1:2/d",
            "azurite at 127.0.0.1:2",
        ),
    ] {
        let address = Address::parse(text).expect(text);
        assert_eq!(address.to_string(), shown);
        let debug = format!("{address:?}{address:#?}");
        assert!(!debug.contains("hunter2") && !debug.contains("Eby8"), "{debug}");
        assert!(debug.contains(&address.account));
    }
}

#[test]
fn proxies_are_bypassed_for_this_machine() {
    let loopback = |host: &str| {
        let text = format!(
            "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{host}/a;QueueEndpoint=http://{host}/a"
        );
        Address::parse(&text).expect(host).is_loopback()
    };
    assert!(["127.0.0.1:1", "127.9.9.9", "localhost:1", "[::1]:1"].into_iter().all(loopback));
    assert!(!["10.0.0.4:1", "localhost.example.org", "example.org"].into_iter().any(loopback));
}

#[test]
fn an_account_is_on_this_machine_when_both_its_services_are() {
    let here = |blobs: &str, queues: &str| {
        let text = format!(
            "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{blobs}/a;QueueEndpoint=https://{queues}/a"
        );
        Address::parse(&text).expect(blobs).on_this_machine()
    };
    assert_eq!(here("localhost:1", "[::1]"), Some(["localhost:1".to_owned(), "[::1]:443".to_owned()]));
    assert_eq!(here("127.0.0.1:1", "example.org:2"), None);
    assert_eq!(here("example.org:1", "127.0.0.1:2"), None);
    assert_eq!(Address::parse("azure:thumbs").expect("an account").on_this_machine(), None);
    let azurite = Address::parse("azurite").expect("the emulator").on_this_machine();
    assert_eq!(azurite, Some(["127.0.0.1:10000".to_owned(), "127.0.0.1:10001".to_owned()]));
}

#[test]
fn the_cloud_is_known_by_the_domain() {
    let cloud = |suffix: &str| {
        Address::parse(&format!("azure:thumbs?endpoint_suffix={suffix}")).expect(suffix).cloud()
    };
    assert_eq!(cloud("core.windows.net"), CloudConfiguration::AzurePublic);
    assert_eq!(cloud("core.chinacloudapi.cn"), CloudConfiguration::AzureChina);
    assert_eq!(cloud("core.usgovcloudapi.net"), CloudConfiguration::AzureGovernment);
}
